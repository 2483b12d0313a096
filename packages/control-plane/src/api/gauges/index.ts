/** All gauges of the control plane. */
import type { GaugeRow } from './gauge-row.ts';
import { type Deps as ProcessDeps, processGauges } from './process-gauges.ts';
import { type Deps as DatabaseDeps, databaseGauges } from './database-gauges.ts';
import { type Deps as RoutingDeps, routingGauges } from './routing-gauges.ts';
import { type Deps as DeploymentDeps, deploymentGauges } from './deployment-gauges.ts';
import { type Deps as NodeDeps, nodeGauges } from './node-gauges.ts';
import { type Deps as JobDeps, jobGauges } from './job-gauges.ts';
import { type Deps as OutboxDeps, outboxGauges } from './outbox-gauges.ts';
import { type Deps as DatasetDeps, datasetGauges } from './dataset-gauges.ts';
import { type Deps as UsageDeps, usageGauges } from './usage-gauges.ts';

export type GaugeDeps = ProcessDeps &
  DatabaseDeps &
  RoutingDeps &
  DeploymentDeps &
  NodeDeps &
  OutboxDeps &
  JobDeps &
  DatasetDeps &
  UsageDeps;

export const gauges = (deps: GaugeDeps): GaugeRow[] => [
  ...processGauges(deps),
  ...databaseGauges(deps),
  ...routingGauges(deps),
  ...deploymentGauges(deps),
  ...nodeGauges(deps),
  ...outboxGauges(deps),
  ...jobGauges(deps),
  ...datasetGauges(deps),
  ...usageGauges(deps),
];
