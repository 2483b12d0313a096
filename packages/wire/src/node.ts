import { type Static, Type } from 'typebox';
import { CopyProgress } from './dataset.ts';
import { Id, literals, NODE_ROLES, orNull, Time } from './vocabulary.ts';

/** One container of ours as the agent saw it. `host_port` is null while none is published. */
export const ObservedContainer = Type.Object({
  id: Type.Optional(Type.String({ maxLength: 128 })),
  name: Type.String({ maxLength: 255 }),
  labels: Type.Record(Type.String(), Type.String()),
  host_port: orNull(Type.Integer({ minimum: 1, maximum: 65_535 })),
  state: Type.String({ maxLength: 40, description: 'created, running, paused, restarting, exited, dead' }),
  image: Type.Optional(Type.String({ maxLength: 500, description: 'as `docker run` was given it' })),
  exit_code: Type.Optional(orNull(Type.Integer({ description: 'of its last run; null while it runs' }))),
  out_of_memory: Type.Optional(Type.Boolean()),
  started_at: Type.Optional(orNull(Time)),
  memory_bytes: Type.Optional(orNull(Type.Integer())),
  cpus: Type.Optional(orNull(Type.Number())),
});
export type ObservedContainer = Static<typeof ObservedContainer>;

export const CachedDataset = Type.Object({
  dataset_id: Id,
  version: Type.Integer({ minimum: 1 }),
  bytes: Type.Integer({ minimum: 0 }),
  last_used_at: Time,
  name: Type.Optional(Type.String({ maxLength: 63 })),
  pinned: Type.Optional(Type.Boolean({ description: 'mounted by what runs, or by one of the last releases kept' })),
  recopyable: Type.Optional(
    Type.Boolean({
      description: 'pinned by kept releases alone, and the share still has this version: evicted when nothing else makes room',
    }),
  ),
});
export type CachedDataset = Static<typeof CachedDataset>;

/** How secrets of one node and join tokens begin, so that scanners and people know them. The id of the node or token follows. */
export const NODE_SECRET_PREFIX = 'berthnode_';
export const JOIN_TOKEN_PREFIX = 'berthjoin_';

/** Bytes on the disks that the engine and the datasets use. A part is null while it is not known. */
export const NodeDisk = Type.Object({
  datasets: orNull(Type.Number({ minimum: 0, description: 'copies of datasets' })),
  images: orNull(Type.Number({ minimum: 0 })),
  build_cache: orNull(Type.Number({ minimum: 0 })),
  other: orNull(Type.Number({ minimum: 0, description: 'everything else on these disks' })),
  free: Type.Number({ minimum: 0 }),
  total: Type.Number({ minimum: 0 }),
});
export type NodeDisk = Static<typeof NodeDisk>;

/** The node's container engine, as it answered its agent last. `error` is null while it answers. */
export const NodeEngine = Type.Object({
  ok: Type.Boolean(),
  version: orNull(Type.String({ maxLength: 100 })),
  error: orNull(Type.String({ maxLength: 500 })),
});
export type NodeEngine = Static<typeof NodeEngine>;

/**
 * Body of `POST /api/agent/register`. The first four are the contract's; the rest is what our agent adds.
 * Unknown fields are ignored, so that a newer agent can talk to an older control plane.
 * `containers` left out means "not looked at", never "there are none".
 */
export const NodeRegister = Type.Object({
  hostname: Type.String({ minLength: 1, maxLength: 253 }),
  role: literals(NODE_ROLES),
  host_ip: Type.String({ minLength: 1, maxLength: 253 }),
  max_storage: Type.Number({ minimum: 0, description: 'bytes' }),
  free_storage: Type.Optional(Type.Number({ minimum: 0, description: 'bytes' })),
  max_builds: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, description: 'builds at once; 1 when left out' })),
  cached: Type.Optional(Type.Array(CachedDataset)),
  copy_rate: Type.Optional(
    orNull(Type.Number({ exclusiveMinimum: 0, description: 'bytes a second of its copies of late; null: none yet' })),
  ),
  containers: Type.Optional(Type.Array(ObservedContainer)),
  agent_version: Type.Optional(Type.String({ maxLength: 60 })),
  last_answer_at: Type.Optional(
    orNull({ ...Time, description: 'last_seen_at of the last answer that this process got: `containers` was looked at after it' }),
  ),
  boot_id: Type.Optional(Type.String({ maxLength: 100, description: 'new for each start of the agent process' })),
  arch: Type.Optional(Type.String({ maxLength: 40, description: 'Go’s name of the engine’s architecture: amd64, arm64' })),
  engine: Type.Optional(NodeEngine),
  capabilities: Type.Optional(
    Type.Array(Type.String({ maxLength: 40 }), { maxItems: 32, description: 'what the agent can do beyond the contract' }),
  ),
  disk: Type.Optional(NodeDisk),
  publish_ip: Type.Optional(
    orNull(Type.String({ maxLength: 253, description: 'address that containers’ ports are bound to; null: not set, so all' })),
  ),
  default_memory: Type.Optional(
    orNull(Type.Number({ minimum: 0, description: 'bytes a container of a project without a limit may use; null: all' })),
  ),
});
export type NodeRegister = Static<typeof NodeRegister>;

/** One prewarm of a node. */
export const NodeCopy = Type.Object({
  task_id: Id,
  dataset_id: Id,
  name: Type.String(),
  version: Type.Integer(),
  status: literals(['waiting', 'copying', 'done', 'failed']),
  error: orNull(Type.Object({ code: Type.String(), message: Type.String() })),
  progress: orNull(CopyProgress),
  requested_at: Time,
});
export type NodeCopy = Static<typeof NodeCopy>;

/** A node that is being emptied. `left`: what still runs there, and what became of the attempt to move it. */
export const Drain = Type.Object({
  started_at: Time,
  finished_at: orNull(Time),
  moved: Type.Integer({ minimum: 0 }),
  left: Type.Array(
    Type.Object({
      project_id: Id,
      project: Type.String(),
      deployment_id: Id,
      moving_to: orNull(Type.String({ description: 'id of the deployment that is to take over' })),
      problem: orNull(Type.String()),
    }),
  ),
});
export type Drain = Static<typeof Drain>;

export const Prewarm = Type.Object({ dataset_id: Id }, { additionalProperties: false });

/** What would be evicted, least recently used first; `enough`: whether that makes room for what was asked. */
export const CacheRoom = Type.Object({
  free_bytes: Type.Number(),
  wanted_bytes: Type.Number(),
  evict: Type.Array(CachedDataset),
  freed_bytes: Type.Number(),
  pinned_bytes: Type.Number(),
  enough: Type.Boolean(),
});
export type CacheRoom = Static<typeof CacheRoom>;

export const Node = Type.Object({
  id: Id,
  hostname: Type.String(),
  role: literals(NODE_ROLES),
  host_ip: Type.String(),
  max_storage: Type.Number(),
  free_storage: orNull(Type.Number()),
  last_seen_at: Time,
  status: literals(['online', 'offline']),
  schedulable: Type.Boolean(),
  deleting: Type.Boolean(),
  agent_version: orNull(Type.String()),
  max_builds: Type.Integer(),
  arch: orNull(Type.String()),
  engine: orNull(NodeEngine),
  capabilities: orNull(Type.Array(Type.String(), { description: 'null: its agent sends none' })),
  disk: orNull(NodeDisk),
  has_secret: Type.Boolean({ description: 'it has a secret of its own: requests for it with AGENT_SECRET get 401' }),
  doubled: orNull(
    Type.Object(
      {
        host_ip: Type.String(),
        why: literals(['boot', 'secret']),
        since: Time,
        last_seen_at: Time,
      },
      {
        description:
          'another machine that registers under this name and is refused; boot: two processes took turns; secret: it lacks the node’s own secret',
      },
    ),
  ),
  node_secret: Type.Optional(Type.String({ description: 'in an agent’s answer, once: the node’s own secret' })),
  cached: Type.Array(CachedDataset),
  copy_rate: orNull(Type.Number()),
  copying: Type.Optional(
    Type.Array(NodeCopy, { description: 'copies asked for by prewarm, the last ended ones too. Not in an agent’s answer' }),
  ),
  drain: Type.Optional(orNull(Drain)),
  forget: Type.Optional(Type.Array(Id, { description: 'in an agent’s answer: cached datasets that are no more' })),
  containers: Type.Array(ObservedContainer),
  open_tasks: Type.Optional(
    Type.String({
      description:
        'in an agent’s answer: its open tasks as of a few seconds ago, a line each; an agent whose list says otherwise asks for it anew',
    }),
  ),
  quarantined: Type.Optional(
    Type.Array(Type.String(), {
      description: 'names of those of `containers` whose deployment is not known here: left alone; people decide. Not in an agent’s answer',
    }),
  ),
});
export type Node = Static<typeof Node>;

export const PlacementRow = Type.Object({
  node_id: Id,
  hostname: Type.String(),
  eligible: Type.Boolean(),
  reason: orNull(Type.String()),
  cached_dataset_count: Type.Integer(),
  missing_bytes: Type.Number(),
  free_storage_bytes: Type.Number(),
  score: Type.Number(),
  estimated_seconds: orNull(Type.Number()),
});
export type PlacementRow = Static<typeof PlacementRow>;

/** Of the nodes that a deployment's record of its placement does not name: how many could have taken it, and how many could not, by reason. */
const LeftOut = Type.Object({ eligible: Type.Integer(), refused: Type.Record(Type.String(), Type.Integer()) });
export const Placement = Type.Object({ items: Type.Array(PlacementRow), winner: orNull(Id), left_out: Type.Optional(LeftOut) });
export type Placement = Static<typeof Placement>;
