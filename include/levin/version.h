#ifndef LEVIN_VERSION_H
#define LEVIN_VERSION_H
#define LEVIN_VERSION "0.1.0"
#endif
