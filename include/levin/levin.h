/* Everything of levin's library. */
#ifndef LEVIN_LEVIN_H
#define LEVIN_LEVIN_H

#include <levin/data.h>
#include <levin/device.h>
#include <levin/dlpack.h>
#include <levin/linalg.h>
#include <levin/nn.h>
#include <levin/ops.h>
#include <levin/status.h>
#include <levin/tensor.h>
#include <levin/pins.h>
#include <levin/recipe.h>
#include <levin/trainer.h>
#include <levin/version.h>

#endif
