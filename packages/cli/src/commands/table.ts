/** All commands. Help, completion, docs/cli.md and the parser are made from this table. */
import type { RouteName } from '@berth/wire/routes';
import { ACCOUNT_COMMANDS } from './account.ts';
import { AUDIT_COMMANDS } from './audit.ts';
import { CLEAN_UP_COMMANDS } from './clean-up.ts';
import { COMPLETION_COMMANDS } from './completion.ts';
import { CONFIG_COMMANDS } from './config.ts';
import type { Command } from './command.ts';
import { DATASET_COMMANDS } from './dataset.ts';
import { DEPLOY_COMMANDS } from './deploy.ts';
import { DOMAIN_COMMANDS } from './domain.ts';
import { LIFECYCLE_COMMANDS } from './lifecycle.ts';
import { EXEC_COMMANDS } from './exec.ts';
import { GIT_COMMANDS } from './git.ts';
import { HOOK_COMMANDS } from './hook.ts';
import { INSTANCE_COMMANDS } from './instances.ts';
import { NODE_COMMANDS } from './node.ts';
import { NOTIFICATION_COMMANDS } from './notification.ts';
import { STATUS_COMMANDS } from './status.ts';
import { MCP_COMMANDS } from './mcp.ts';
import { METRICS_COMMANDS } from './metrics.ts';
import { PROCESS_COMMANDS } from './processes.ts';
import { PROJECT_COMMANDS } from './project.ts';
import { RIGHTS_COMMANDS } from './rights.ts';
import { JOB_COMMANDS } from './jobs.ts';
import { RUN_COMMANDS } from './runs.ts';
import { SECRET_COMMANDS } from './secret.ts';
import { TOKEN_COMMANDS } from './token.ts';
import { TUNNEL_COMMANDS } from './tunnel.ts';
import { USER_COMMANDS } from './user.ts';

export const COMMANDS: readonly Command[] = [
  ...ACCOUNT_COMMANDS,
  ...DEPLOY_COMMANDS,
  ...LIFECYCLE_COMMANDS,
  ...INSTANCE_COMMANDS,
  ...PROCESS_COMMANDS,
  ...RUN_COMMANDS,
  ...JOB_COMMANDS,
  ...EXEC_COMMANDS,
  ...TUNNEL_COMMANDS,
  ...STATUS_COMMANDS,
  ...METRICS_COMMANDS,
  ...PROJECT_COMMANDS,
  ...CONFIG_COMMANDS,
  ...RIGHTS_COMMANDS,
  ...GIT_COMMANDS,
  ...DOMAIN_COMMANDS,
  ...HOOK_COMMANDS,
  ...NOTIFICATION_COMMANDS,
  ...SECRET_COMMANDS,
  ...NODE_COMMANDS,
  ...DATASET_COMMANDS,
  ...USER_COMMANDS,
  ...TOKEN_COMMANDS,
  ...AUDIT_COMMANDS,
  ...CLEAN_UP_COMMANDS,
  ...MCP_COMMANDS,
  ...COMPLETION_COMMANDS,
];

export const NOUNS: Readonly<Record<string, string>> = {
  context: 'Addresses to which you signed in',
  deployment: 'Deployments: list, show, watch',
  process: 'Processes, such as a worker beside web: list, set, remove',
  job: 'Jobs, which run by a schedule: list, add, show, edit, delete, run, runs',
  runs: 'Runs of commands: list, show, logs, cancel',
  project: 'Projects: list, create, show, edit, delete',
  'project members': 'Who may see a project, besides admins',
  config: 'berth.toml: settings in the repository',
  env: 'Environment variables of a project',
  domain: 'Custom domains of a project',
  'deploy-key': 'The ssh key with which Berth reads a private repository',
  'git-token': 'The token with which Berth reads a private repository over https',
  'git-host': 'Git hosts and their trusted ssh host keys',
  hook: 'Push to deploy: the hook of a project and its deliveries',
  notification: 'Notifications: where Berth reports problems to',
  secret: 'Secrets of a project; their values are never shown',
  node: 'Machines: list, drain, join tokens',
  'node admission': 'Contract-only nodes that may use AGENT_SECRET',
  dataset: 'Datasets: list, scan, history',
  user: 'Users of the API',
  token: 'Personal API tokens',
  device: 'Device tokens of the device flow',
};

/**
 * Routes that have no command, with the reason. Routes for agents, the gateway and the proxy are
 * not listed: people do not call them.
 */
export const NO_VERB: Partial<Record<RouteName, string>> = {
  authMethods: 'the sign-in page of the dashboard reads it; berth login uses the device flow',
  refresh: 'every command refreshes its session by itself',
  system:
    'the dashboard shows it; on the machine, berth doctor control-plane and berth backup list',
  berthTomlSchema: 'for editors; `berth config check` has the same schema',
  openapi: 'a document for programs; people read /docs',
  healthz: 'for load balancers and monitoring',
  readyz: 'for load balancers and monitoring',
  metrics: 'for Prometheus',
  getInstallScript: 'curl fetches it on a machine without Berth',
  getPackage: 'the command of a join token fetches it',
  traefikConfig: 'for the reverse proxy',
  openExec: 'berth exec opens it with its ticket',
  receiveHook: 'forges call it with the signature of the hook',
};
