/** All groups of routes. Each group takes its own `Deps`, and no other part of the platform. */
import type { Define } from './define.ts';
import { agentDatasetRoutes } from './routes/agent-datasets.ts';
import { agentRoutes } from './routes/agent.ts';
import { agentVolumeRoutes } from './routes/agent-volumes.ts';
import { auditRoutes } from './routes/audit.ts';
import { authRoutes } from './routes/auth.ts';
import { cleanUpRoutes } from './routes/clean-ups.ts';
import { dataCopyRoutes } from './routes/data-copies.ts';
import { datasetRoutes } from './routes/datasets.ts';
import { deploymentRoutes } from './routes/deployments.ts';
import { domainRoutes } from './routes/domains.ts';
import { eventRoutes } from './routes/events.ts';
import { execRoutes } from './routes/exec.ts';
import { gatewayRoutes } from './routes/gateway.ts';
import { gitRoutes } from './routes/git.ts';
import { hookRoutes } from './routes/hooks.ts';
import { instanceRoutes } from './routes/instances.ts';
import { joiningRoutes } from './routes/joining.ts';
import { logRoutes } from './routes/logs.ts';
import { metricRoutes } from './routes/metrics.ts';
import { nodeFailoverRoutes } from './routes/node-failover.ts';
import { nodeRoutes } from './routes/nodes.ts';
import { notificationRoutes } from './routes/notifications.ts';
import { placementRoutes } from './routes/placement.ts';
import { projectRoutes } from './routes/projects.ts';
import { repositoryLookRoutes } from './routes/repository-looks.ts';
import { jobRoutes } from './routes/jobs.ts';
import { runRoutes } from './routes/runs.ts';
import { runtimeLogRoutes } from './routes/runtime-logs.ts';
import { secretRoutes } from './routes/secrets.ts';
import { systemRoutes } from './routes/system.ts';
import { apiTokenRoutes } from './routes/tokens.ts';
import { traefikRoutes } from './routes/traefik.ts';
import { userRoutes } from './routes/users.ts';
import { volumeRoutes } from './routes/volumes.ts';

const GROUPS = [
  authRoutes,
  userRoutes,
  apiTokenRoutes,
  auditRoutes,
  cleanUpRoutes,
  repositoryLookRoutes,
  projectRoutes,
  domainRoutes,
  secretRoutes,
  datasetRoutes,
  dataCopyRoutes,
  deploymentRoutes,
  instanceRoutes,
  execRoutes,
  notificationRoutes,
  hookRoutes,
  eventRoutes,
  logRoutes,
  runRoutes,
  jobRoutes,
  runtimeLogRoutes,
  nodeFailoverRoutes,
  nodeRoutes,
  joiningRoutes,
  gitRoutes,
  placementRoutes,
  agentRoutes,
  agentDatasetRoutes,
  volumeRoutes,
  agentVolumeRoutes,
  metricRoutes,
  gatewayRoutes,
  traefikRoutes,
  systemRoutes,
] as const;

/** The `Deps` of all groups together. */
export type RouteDeps = [(typeof GROUPS)[number]] extends [
  (route: Define, deps: infer Deps) => void,
]
  ? Deps
  : never;

export function wireRoutes(route: Define, deps: RouteDeps): void {
  for (const define of GROUPS) define(route, deps);
}
