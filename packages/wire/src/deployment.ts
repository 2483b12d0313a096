import { type Static, Type } from 'typebox';
import { DeploymentDataset, TaskProgress } from './dataset.ts';
import { Placement } from './node.ts';
import { CommitId, DEPLOYMENT_STATES, HEALTH_STATES, Id, ImageDigest, literals, orNull, Time } from './vocabulary.ts';

export const DeploymentCreate = Type.Object(
  { commit: Type.Optional(orNull(CommitId)), note: Type.Optional(orNull(Type.String({ maxLength: 500 }))) },
  { additionalProperties: false },
);
export type DeploymentCreate = Static<typeof DeploymentCreate>;

export const RollbackCreate = Type.Object({ deployment_id: Id }, { additionalProperties: false });

/** One line of the story of a deployment: what happened, when, and why. A line that comes again is counted, and says so in its message. */
export const DeploymentEvent = Type.Object({
  at: Time,
  kind: Type.String(),
  message: Type.String(),
  count: Type.Optional(Type.Integer({ minimum: 2, description: 'how often it happened; absent: once' })),
  since: Type.Optional(Type.String({ format: 'date-time', description: 'the first time; `at` is the last one' })),
});
export type DeploymentEvent = Static<typeof DeploymentEvent>;

export const Health = Type.Object({ status: literals(HEALTH_STATES), since: Time, detail: orNull(Type.String()) });
export type Health = Static<typeof Health>;

export const TRIGGERS = ['api', 'hook', 'rollback', 'restart', 'data', 'drain'] as const;
export type Trigger = (typeof TRIGGERS)[number];

/** Who asked for a deployment. `system`: Berth itself, for a drain or for new data. */
export const CreatedBy = Type.Object({
  kind: literals(['user', 'token', 'hook', 'system']),
  id: orNull(Type.String()),
  name: orNull(Type.String({ description: 'an e-mail address; for a token its name and whose it is' })),
});
export type CreatedBy = Static<typeof CreatedBy>;

export const PHASES = ['queue', 'build', 'place', 'copy', 'start', 'route'] as const;
export type PhaseName = (typeof PHASES)[number];
export const Phase = Type.Object({
  name: literals(PHASES),
  started_at: Time,
  ended_at: orNull(Type.Unsafe<Time>({ ...Time, description: 'null: it goes on' })),
});

/** As lists have it: without the story and the scores of placement, which grow. */
export const DeploymentItem = Type.Object({
  id: Id,
  project_id: Id,
  generation: Type.Integer(),
  status: literals(DEPLOYMENT_STATES),
  note: orNull(Type.String()),
  error: orNull(Type.Object({ code: Type.String(), message: Type.String() })),
  cancel_requested: Type.Boolean(),
  rollback_of: orNull(Id),
  created_by: orNull(CreatedBy),
  trigger: orNull(literals(TRIGGERS)),
  branch: orNull(Type.String()),
  commit: orNull(CommitId),
  commit_message: orNull(Type.String({ description: 'null: the agent did not say' })),
  commit_author: orNull(Type.String()),
  phases: Type.Array(Phase, { description: 'of the last try; a phase that an agent does not report is left out' }),
  image_tag: orNull(Type.String()),
  image_digest: orNull(ImageDigest),
  node_id: orNull(Id),
  host_ip: orNull(Type.String()),
  host_port: orNull(Type.Integer()),
  health: orNull(Health),
  created_at: Time,
  finished_at: orNull(Time),
  url: Type.String(),
  datasets: Type.Array(DeploymentDataset),
  progress: orNull(TaskProgress),
  log_removed_at: orNull(Type.Unsafe<Time>({ ...Time, description: 'when retention removed the log; null: it is there' })),
  story_removed_at: orNull(
    Type.Unsafe<Time>({ ...Time, description: 'when retention removed story, tasks and placement; null: they are there' }),
  ),
});
export type DeploymentItem = Static<typeof DeploymentItem>;

export const Deployment = Type.Object({ ...DeploymentItem.properties, events: Type.Array(DeploymentEvent), placement: orNull(Placement) });
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
  next: Type.Integer({ description: 'pass as `after` for what follows' }),
  unavailable: Type.Optional(Type.String({ description: 'why there are no lines: retention removed the log' })),
});
