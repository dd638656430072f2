// Everything of the core.
#pragma once

#include "reprise/costs.h"
#include "reprise/error.h"
#include "reprise/graph.h"
#include "reprise/graph_builder.h"
#include "reprise/ids.h"
#include "reprise/io.h"
#include "reprise/lives.h"
#include "reprise/papers.h"
#include "reprise/place.h"
#include "reprise/plan.h"
#include "reprise/plan_family.h"
#include "reprise/report.h"
#include "reprise/simulate.h"
#include "reprise/solve.h"
#include "reprise/validate.h"
