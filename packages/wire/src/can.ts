/**
 * Lists the states in which each action is legal. The server and the user interface both read these
 * tables.
 */
import type { DatasetState } from './dataset.ts';
import type { Member, Project } from './project.ts';
import { ROUTES, type RouteName } from './routes.ts';
import { type DeploymentState, isSettled, type Role, ROLES } from './vocabulary.ts';

export const DEPLOYMENT_ACTIONS = {
  /** A `deploying` deployment can be cancelled until its route is published. */
  cancel: ['pending', 'building', 'built', 'deploying'],
  /**
   * Only a deployment that ran has a tested release. A deployment becomes `retired` only from
   * `running`.
   */
  rollback_to: ['running', 'retired'],
} as const satisfies Record<string, readonly DeploymentState[]>;
export type DeploymentAction = keyof typeof DEPLOYMENT_ACTIONS;

export const can = (action: DeploymentAction, state: DeploymentState): boolean =>
  (DEPLOYMENT_ACTIONS[action] as readonly DeploymentState[]).includes(state);

/**
 * Returns why the action is not possible in this state, as the end of a sentence; null if it is
 * possible.
 */
export function whyNot(action: DeploymentAction, state: DeploymentState): string | null {
  if (can(action, state)) return null;
  if (action === 'cancel')
    return state === 'running' ? 'it is live already' : `it has ended (${state})`;
  return isSettled(state) ? `it never ran (${state})` : `it is not live yet (${state})`;
}

/**
 * `running`: the project has a running deployment, even if the project and so its container are
 * stopped.
 */
export type ProjectCondition = { deleting: boolean; stopped: boolean; running: boolean };
export const PROJECT_ACTIONS = ['restart', 'stop', 'start'] as const;
export type ProjectAction = (typeof PROJECT_ACTIONS)[number];

const BEING_DELETED = 'it is being deleted';

/**
 * Returns why the action is not possible, as the end of a sentence; null if it is possible. A
 * stopped project can be stopped again.
 */
export function whyNotProject(
  action: ProjectAction,
  { deleting, stopped, running }: ProjectCondition,
): string | null {
  if (deleting) return BEING_DELETED;
  if (action === 'restart' && stopped) return 'it is stopped; start it';
  if (action === 'restart') return running ? null : 'it has no running version; deploy it';
  if (action === 'start') return stopped ? null : 'it is not stopped';
  return null;
}

/**
 * Returns why a project can have one instance only: what two instances would write to at the same
 * time. Null: it can have more.
 */
export function whyOnlyOne({
  volumes,
  datasets,
}: {
  volumes: readonly unknown[];
  datasets: readonly Pick<Project['datasets'][number], 'mode'>[];
}): string | null {
  if (volumes.length > 0) return 'the project has volumes';
  return datasets.some(({ mode }) => mode === 'readwrite')
    ? 'a dataset is mounted readwrite'
    : null;
}

export const DATASET_ACTIONS = {
  /**
   * Not `unreachable`: files that a scan cannot read are not lost. The scan checks the state again,
   * because it can be outdated.
   */
  accept_loss: ['new', 'ok', 'suspicious'],
} as const satisfies Record<string, readonly DatasetState[]>;
export type DatasetAction = keyof typeof DATASET_ACTIONS;

export const canDataset = (action: DatasetAction, state: DatasetState): boolean =>
  (DATASET_ACTIONS[action] as readonly DatasetState[]).includes(state);

export type DatasetCondition = { deleting: boolean; status: DatasetState };
type NodeCondition = { deleting: boolean };
type Subjects = {
  project: ProjectCondition;
  deployment: DeploymentState;
  dataset: DatasetCondition;
  node: NodeCondition;
  none: null;
};

type Row = {
  /** The route of the action. Its row in the route table has the required role. */
  route: RouteName;
  /** The resource whose condition decides whether the action is possible. */
  on: keyof Subjects;
  /** The required role, if the handler needs a higher role than the route. */
  who?: Role;
};
/**
 * The actions of people that change something. The dashboard disables a control according to its
 * row; a test compares each row with the server.
 */
export const ACTIONS = {
  create_project: { route: 'createProject', on: 'none' },
  look_at_repository: { route: 'createRepositoryLook', on: 'none' },
  deploy: { route: 'createDeployment', on: 'project' },
  restart: { route: 'restartProject', on: 'project' },
  stop: { route: 'stopProject', on: 'project' },
  start: { route: 'startProject', on: 'project' },
  scale: { route: 'scaleProject', on: 'project' },
  edit_project: { route: 'patchProject', on: 'project' },
  edit_members: { route: 'patchProject', on: 'project', who: 'admin' },
  delete_project: { route: 'deleteProject', on: 'project' },
  set_env: { route: 'putEnv', on: 'project' },
  delete_env: { route: 'deleteEnv', on: 'project' },
  set_secret: { route: 'putSecret', on: 'project' },
  delete_secret: { route: 'deleteSecret', on: 'project' },
  set_hook: { route: 'putHook', on: 'project' },
  delete_hook: { route: 'deleteHook', on: 'project' },
  set_deploy_key: { route: 'createDeployKey', on: 'project' },
  delete_deploy_key: { route: 'deleteDeployKey', on: 'project' },
  set_git_token: { route: 'putGitToken', on: 'project' },
  delete_git_token: { route: 'deleteGitToken', on: 'project' },
  cancel: { route: 'cancelDeployment', on: 'deployment' },
  rollback_to: { route: 'rollback', on: 'deployment' },
  create_dataset: { route: 'createDataset', on: 'none' },
  edit_dataset: { route: 'patchDataset', on: 'dataset' },
  scan: { route: 'scanDataset', on: 'dataset' },
  accept_loss: { route: 'scanDataset', on: 'dataset' },
  delete_dataset: { route: 'deleteDataset', on: 'dataset' },
  label_node: { route: 'patchNode', on: 'node' },
  cordon: { route: 'cordonNode', on: 'node' },
  uncordon: { route: 'uncordonNode', on: 'node' },
  drain: { route: 'drainNode', on: 'node' },
  delete_node: { route: 'deleteNode', on: 'node' },
  confirm_removed: { route: 'confirmRemoved', on: 'node' },
  create_user: { route: 'createUser', on: 'none' },
  clean_up: { route: 'startCleanUp', on: 'none' },
} as const satisfies Record<string, Row>;
export type Action = keyof typeof ACTIONS;
export type SubjectOf<A extends Action> = Subjects[(typeof ACTIONS)[A]['on']];

/** Returns the lowest role that can perform the action. */
function roleFor(action: Action): Role {
  const row: Row = ACTIONS[action];
  const { who } = ROUTES[row.route];
  if (row.who !== undefined) return row.who;
  if (!isPersonRole(who)) throw new Error(`the route ${row.route} is not for people`);
  return who;
}

const isPersonRole = (who: string): who is Role => (ROLES as readonly string[]).includes(who);
const isRole = (role: Role, least: Role): boolean => ROLES.indexOf(role) >= ROLES.indexOf(least);

/** Returns why this role is not enough, as the end of a sentence; null if it is enough. */
export const whyNotRole = (least: Role, role: Role): string | null =>
  isRole(role, least) ? null : `your role is ${role}; this needs ${least}`;

/**
 * Returns the role of a user in a project, or null if the user is not a member and the project is
 * hidden. The role of a member cannot exceed the user's own role.
 */
export function roleInProject(
  members: readonly Member[],
  { id, role, isAdmin = role === 'admin' }: { id: string; role: Role; isAdmin?: boolean },
): Role | null {
  if (isAdmin || members.length === 0) return role;
  const member = members.find(({ user_id }) => user_id === id);
  if (member === undefined) return null;
  return isRole(member.role, role) ? role : member.role;
}

/**
 * Returns why a user with this role cannot perform the action on a resource in this condition, as
 * the end of a sentence; null if the action is possible. A repeated deletion is possible and
 * changes nothing. So is the confirmation that a container is gone from a node that is being
 * deleted.
 */
export function whyNotAction<A extends Action>(
  action: A,
  role: Role,
  subject: SubjectOf<A>,
): string | null {
  return whyNotRole(roleFor(action), role) ?? whyNotIn(action, subject);
}

const WHILE_DELETED: readonly Action[] = [
  'delete_project',
  'delete_dataset',
  'delete_node',
  'confirm_removed',
];

function whyNotIn(action: Action, subject: Subjects[keyof Subjects]): string | null {
  if (subject === null || WHILE_DELETED.includes(action)) return null;
  if (typeof subject === 'string')
    return action === 'cancel' || action === 'rollback_to' ? whyNot(action, subject) : null;
  if (subject.deleting) return BEING_DELETED;
  if ((action === 'restart' || action === 'stop' || action === 'start') && 'stopped' in subject)
    return whyNotProject(action, subject);
  if (action === 'accept_loss' && 'status' in subject)
    return canDataset('accept_loss', subject.status) ? null : `it is ${subject.status}`;
  return null;
}
