import { type Static, Type } from 'typebox';
import { DeploymentDataset, TaskProgress } from './dataset.ts';
import { PlacedInstance } from './instance.ts';
import { Placement } from './node.ts';
import { ConfigOrigin } from './project.ts';
import {
  CommitId,
  DEPLOYMENT_STATES,
  HEALTH_CAUSES,
  HEALTH_STATES,
  type HealthCause,
  Id,
  ImageDigest,
  literals,
  orNull,
  Time,
} from './vocabulary.ts';

export const DeploymentCreate = Type.Object(
  {
    commit: Type.Optional(orNull(CommitId)),
    note: Type.Optional(orNull(Type.String({ maxLength: 500 }))),
  },
  { additionalProperties: false },
);
export type DeploymentCreate = Static<typeof DeploymentCreate>;

/**
 * Body of a rollback. Without `deployment_id` the rollback goes to the next older release that ran.
 */
export const RollbackCreate = Type.Object(
  { deployment_id: Type.Optional(Id) },
  { additionalProperties: false },
);

/**
 * One event of a deployment, with its time and cause. Berth counts a repeated event instead of
 * storing it again; the message shows the count.
 */
export const DeploymentEvent = Type.Object({
  at: Time,
  kind: Type.String(),
  message: Type.String(),
  count: Type.Optional(
    Type.Integer({ minimum: 2, description: 'how many times it happened; absent if once' }),
  ),
  since: Type.Optional(
    Type.String({
      format: 'date-time',
      description: 'time of the first occurrence; `at` is the last one',
    }),
  ),
});
export type DeploymentEvent = Static<typeof DeploymentEvent>;

export const Health = Type.Object({
  status: literals(HEALTH_STATES),
  since: Time,
  detail: orNull(Type.String()),
  cause: Type.Optional(
    Type.Unsafe<HealthCause>({
      ...literals(HEALTH_CAUSES),
      description: 'absent: another cause, or a control plane of an earlier version',
    }),
  ),
});
export type Health = Static<typeof Health>;

export const TRIGGERS = ['api', 'hook', 'rollback', 'restart', 'start', 'data', 'drain'] as const;
export type Trigger = (typeof TRIGGERS)[number];

/**
 * The requester of a deployment. `system` is Berth itself, which requests deployments for a drain
 * or for new data.
 */
export const CreatedBy = Type.Object({
  kind: literals(['user', 'token', 'hook', 'system']),
  id: orNull(Type.String()),
  name: orNull(Type.String({ description: 'e-mail address; for a token its name and its owner' })),
});
export type CreatedBy = Static<typeof CreatedBy>;

export const PHASES = ['queue', 'build', 'place', 'copy', 'start', 'route'] as const;
export type PhaseName = (typeof PHASES)[number];
export const Phase = Type.Object({
  name: literals(PHASES),
  started_at: Time,
  ended_at: orNull(Type.Unsafe<Time>({ ...Time, description: 'null while the phase continues' })),
});

/** Why the container of a running version is stopped. */
const STOP_CAUSES = ['stopped', 'scaled_to_zero', 'newer_version'] as const;
export type StopCause = (typeof STOP_CAUSES)[number];

/** A deployment in lists. It has no events and no placement scores, because both can be large. */
export const DeploymentItem = Type.Object({
  id: Id,
  project_id: Id,
  generation: Type.Integer(),
  status: literals(DEPLOYMENT_STATES),
  note: orNull(Type.String()),
  error: orNull(Type.Object({ code: Type.String(), message: Type.String() })),
  waiting: orNull(Type.String({ description: 'why it waits; null: it does not wait' })),
  rests: Type.Optional(
    orNull(
      Type.Unsafe<StopCause>({
        ...literals(STOP_CAUSES),
        description: 'why the container of a running version is stopped; null: it is not',
      }),
    ),
  ),
  cancel_requested: Type.Boolean(),
  rollback_of: orNull(Id),
  rolled_back_from: Type.Optional(
    orNull(
      Type.Integer({
        description:
          'number of the deployment that a rollback replaced; a restart or a move of the ' +
          'rolled back version keeps it',
      }),
    ),
  ),
  created_by: orNull(CreatedBy),
  trigger: orNull(literals(TRIGGERS)),
  branch: orNull(Type.String()),
  commit: orNull(CommitId),
  commit_message: orNull(Type.String({ description: 'null: the agent did not say' })),
  commit_author: orNull(Type.String()),
  phases: Type.Array(Phase, {
    description: 'of the last try; a phase that an agent does not report is left out',
  }),
  image_tag: orNull(Type.String()),
  image_digest: orNull(ImageDigest),
  image_removed_at: Type.Optional(
    orNull(
      Type.Unsafe<Time>({
        ...Time,
        description:
          'time at which a clean-up removed its image, or found it missing; a rollback to it ' +
          'is refused, unless a later clean-up finds it',
      }),
    ),
  ),
  node_id: orNull(Id),
  node_name: orNull(
    Type.String({
      description: 'hostname of the node; null without a node, and if the node was deleted',
    }),
  ),
  host_ip: orNull(Type.String()),
  host_port: orNull(Type.Integer()),
  health: orNull(Health),
  created_at: Time,
  finished_at: orNull(Time),
  url: Type.String(),
  datasets: Type.Array(DeploymentDataset),
  progress: orNull(TaskProgress),
  log_removed_at: orNull(
    Type.Unsafe<Time>({
      ...Time,
      description: 'time at which retention removed the log; null if the log is still stored',
    }),
  ),
  story_removed_at: orNull(
    Type.Unsafe<Time>({
      ...Time,
      description:
        'time at which retention removed events, tasks and placement; null if they are still ' +
        'stored',
    }),
  ),
});
export type DeploymentItem = Static<typeof DeploymentItem>;

export const CommitStatus = Type.Object({
  state: literals(['pending', 'success', 'failure']),
  sent_at: orNull(
    Type.Unsafe<Time>({ ...Time, description: 'null if the forge has not accepted it' }),
  ),
  error: orNull(
    Type.String({ description: 'the last problem while Berth retries, or why it gave up' }),
  ),
  given_up: Type.Boolean({ description: 'true if Berth does not retry any more' }),
});

export const Deployment = Type.Object({
  ...DeploymentItem.properties,
  events: Type.Array(DeploymentEvent),
  config: Type.Optional(
    Type.Unsafe<ConfigOrigin | null>({
      ...orNull(ConfigOrigin),
      description: 'the settings of this version that come from berth.toml; null: none',
    }),
  ),
  placement: orNull(Placement),
  instances: Type.Array(PlacedInstance, {
    description:
      'one container each; the first one is that of `node_id`, `host_ip` and `host_port`. Ended ' +
      'ones are not listed',
  }),
  commit_status: orNull(
    Type.Unsafe<Static<typeof CommitStatus>>({
      ...CommitStatus,
      description: 'the newest status of the commit at its forge; null: none',
    }),
  ),
});
export type Deployment = Static<typeof Deployment>;

export const LogLine = Type.Object({
  seq: Type.Integer(),
  at: Time,
  stream: literals(['stdout', 'stderr', 'system']),
  step: orNull(Type.String()),
  text: Type.String(),
});
export type LogLine = Static<typeof LogLine>;
export const LogPage = Type.Object({
  lines: Type.Array(LogLine),
  next: Type.Integer({ description: 'pass it as `after` to get the following lines' }),
  unavailable: Type.Optional(
    Type.String({ description: 'present if retention removed the log; the reason' }),
  ),
});
