// How fast a device copies to the host's memory and back: measured once, and kept in a file for later runs.
#pragma once

#include <c10/core/Device.h>

#include "reprise/costs.h"

namespace reprise {

// The rates each way while copies go both ways, or, if the link goes one way at a time, each way alone. REQUIRES:
// has_host_link(device).
[[nodiscard]] Link link_of(c10::Device device);
// The link that plans are made for, slower than the measured one: a plan that fills the link waits as soon as it is a
// little slower, and the other way round little is lost.
[[nodiscard]] Link planned_link(Link measured);

}  // namespace reprise
