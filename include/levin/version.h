#ifndef LEVIN_VERSION_H
#define LEVIN_VERSION_H

#include <levin/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LEVIN_VERSION "0.2.0" /* of the headers a program was compiled with */

LVN_API const char *lvn_version(void); /* of the library it runs with */

#ifdef __cplusplus
}
#endif
#endif
