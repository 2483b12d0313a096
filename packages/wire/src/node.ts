import { type Static, Type } from 'typebox';
import { DatasetPins } from './data-copies.ts';
import { CopyProgress } from './dataset.ts';
import { MACHINE_REPORT, MACHINE_VIEW } from './machine.ts';
import { ObservedPressure } from './metrics.ts';
import { MAX_REPORTED_COPIES, ReportedCopy } from './volume.ts';
import { Id, literals, NODE_ROLES, orNull, Time } from './vocabulary.ts';

/** Maximum length of the HEALTHCHECK output in a report, in characters. */
export const MAX_HEALTH_OUTPUT = 500;
/** The result of the image's HEALTHCHECK, as the engine reports it. */
export const ObservedHealth = Type.Object({
  status: literals(['starting', 'healthy', 'unhealthy']),
  output: Type.Optional(
    Type.String({
      maxLength: MAX_HEALTH_OUTPUT,
      description: 'what the check printed, without secrets; only while `unhealthy`',
    }),
  ),
});

/**
 * The result of the probe of `health_path` while the container runs. `starting`: it has not
 * answered since its start, and its time limit for the first answer has not passed.
 */
export const ObservedProbe = Type.Object({
  status: literals(['starting', 'healthy', 'unhealthy']),
  output: Type.Optional(
    Type.String({
      maxLength: MAX_HEALTH_OUTPUT,
      description: 'how the last requests failed; only while `unhealthy`',
    }),
  ),
});
export type ObservedProbe = Static<typeof ObservedProbe>;

/**
 * One of Berth's containers as the agent observed it. `host_port` is null while no port is
 * published.
 */
export const ObservedContainer = Type.Object({
  id: Type.Optional(Type.String({ maxLength: 128 })),
  name: Type.String({ maxLength: 255 }),
  labels: Type.Record(Type.String(), Type.String()),
  host_port: orNull(Type.Integer({ minimum: 1, maximum: 65_535 })),
  port_fixed: Type.Optional(
    Type.Boolean({
      description:
        'false: the engine chooses `host_port` again at each start, so it may be one that ' +
        'another project had',
    }),
  ),
  state: Type.String({
    maxLength: 40,
    description: 'created, running, paused, restarting, exited, dead',
  }),
  image: Type.Optional(
    Type.String({ maxLength: 500, description: 'image reference that `docker run` received' }),
  ),
  exit_code: Type.Optional(
    orNull(Type.Integer({ description: 'exit code of the last run; null while it runs' })),
  ),
  out_of_memory: Type.Optional(Type.Boolean()),
  started_at: Type.Optional(orNull(Time)),
  restarts: Type.Optional(
    Type.Integer({
      minimum: 0,
      description: 'how often the engine restarted it in the last ten minutes; absent: never',
    }),
  ),
  memory_bytes: Type.Optional(orNull(Type.Integer())),
  cpus: Type.Optional(orNull(Type.Number())),
  health: Type.Optional(ObservedHealth),
  probe: Type.Optional(ObservedProbe),
  pressure: Type.Optional(ObservedPressure),
  metrics_problem: Type.Optional(
    Type.String({ maxLength: 300, description: 'why the agent cannot read what it uses' }),
  ),
});
export type ObservedContainer = Static<typeof ObservedContainer>;

export const CachedDataset = Type.Object({
  dataset_id: Id,
  version: Type.Integer({ minimum: 1 }),
  bytes: Type.Integer({ minimum: 0 }),
  last_used_at: Time,
  name: Type.Optional(Type.String({ maxLength: 63 })),
  pinned: Type.Optional(
    Type.Boolean({
      description:
        'mounted by a running container or by a kept release, or a copy for a project ' +
        '(`data_copies`)',
    }),
  ),
  recopyable: Type.Optional(
    Type.Boolean({
      description:
        'only kept releases pin it, and the share still has this version: it is evicted last',
    }),
  ),
});
export type CachedDataset = Static<typeof CachedDataset>;

/**
 * Prefixes of node secrets and join tokens, so that secret scanners and people recognize them. The
 * id of the node or token follows.
 */
export const NODE_SECRET_PREFIX = 'berthnode_';
export const JOIN_TOKEN_PREFIX = 'berthjoin_';

/**
 * One of Berth's images that no container uses, that no task protects, and that is not the only
 * copy.
 */
export const EvictableImage = Type.Object({
  name: Type.String({ maxLength: 500 }),
  bytes: Type.Number({
    minimum: 0,
    description: 'bytes that its removal frees: layers that other images share stay',
  }),
  created_at: Time,
  kept: Type.Boolean({ description: 'a kept release needs it, and the registry still has it' }),
});
export type EvictableImage = Static<typeof EvictableImage>;
/** Maximum number of evictable images that a node reports, in the order of eviction. */
export const MAX_REPORTED_IMAGES = 30;

/** Bytes on the disks that the engine and the datasets use. A value is null while it is unknown. */
export const NodeDisk = Type.Object({
  datasets: orNull(Type.Number({ minimum: 0, description: 'copies of datasets' })),
  images: orNull(Type.Number({ minimum: 0 })),
  build_cache: orNull(Type.Number({ minimum: 0 })),
  other: orNull(Type.Number({ minimum: 0, description: 'everything else on these disks' })),
  free: Type.Number({ minimum: 0 }),
  total: Type.Number({ minimum: 0 }),
  evictable: Type.Optional(
    Type.Object(
      {
        build_cache: Type.Number({
          minimum: 0,
          description: 'bytes of build cache that no build uses',
        }),
        images: Type.Array(EvictableImage, {
          maxItems: MAX_REPORTED_IMAGES,
          description: 'in the order of eviction',
        }),
        own_disk: orNull(
          Type.Object(
            { free: Type.Number({ minimum: 0 }), total: Type.Number({ minimum: 0 }) },
            { description: 'the disk of the engine; null: the datasets are on the same disk' },
          ),
        ),
      },
      {
        description:
          'what the engine of the node can give back; absent from an agent that does not report it',
      },
    ),
  ),
});
export type NodeDisk = Static<typeof NodeDisk>;

/**
 * The last answer of the node's container engine to its agent. `error` is null while the engine
 * answers.
 */
export const NodeEngine = Type.Object({
  ok: Type.Boolean(),
  version: orNull(Type.String({ maxLength: 100 })),
  error: orNull(Type.String({ maxLength: 500 })),
});
export type NodeEngine = Static<typeof NodeEngine>;

/** Maximum number of addresses in one answer. */
export const MAX_NEIGHBOURS = 500;
export const Neighbours = Type.Object({
  etag: Type.String(),
  addresses: Type.Array(Type.String(), { maxItems: MAX_NEIGHBOURS }),
});
export type Neighbours = Static<typeof Neighbours>;

/**
 * Body of `POST /api/agent/register`. The contract defines the first four fields; Berth's agent
 * adds the others. The server ignores unknown fields, so that a newer agent works with an older
 * control plane. An absent `containers` means that the agent did not list its containers, not that
 * it has none.
 */
export const NodeRegister = Type.Object({
  hostname: Type.String({ minLength: 1, maxLength: 253 }),
  role: literals(NODE_ROLES),
  host_ip: Type.String({ minLength: 1, maxLength: 253 }),
  max_storage: Type.Number({ minimum: 0, description: 'bytes' }),
  free_storage: Type.Optional(Type.Number({ minimum: 0, description: 'bytes' })),
  max_builds: Type.Optional(
    Type.Integer({ minimum: 1, maximum: 1000, description: 'builds at the same time; default 1' }),
  ),
  cached: Type.Optional(Type.Array(CachedDataset)),
  copy_rate: Type.Optional(
    orNull(
      Type.Number({
        exclusiveMinimum: 0,
        description: 'bytes per second of the agent’s recent copies; null before the first copy',
      }),
    ),
  ),
  containers: Type.Optional(Type.Array(ObservedContainer)),
  agent_version: Type.Optional(Type.String({ maxLength: 60 })),
  last_answer_at: Type.Optional(
    orNull({
      ...Time,
      description:
        '`last_seen_at` of the last answer that this process received; it listed `containers` ' +
        'after that answer',
    }),
  ),
  boot_id: Type.Optional(
    Type.String({ maxLength: 100, description: 'changes with each start of the agent process' }),
  ),
  arch: Type.Optional(
    Type.String({
      maxLength: 40,
      description: 'architecture of the engine as Go names it: amd64, arm64',
    }),
  ),
  engine: Type.Optional(NodeEngine),
  volumes: Type.Optional(Type.Array(ReportedCopy, { maxItems: MAX_REPORTED_COPIES })),
  removed_volumes: Type.Optional(
    Type.Array(Id, {
      maxItems: MAX_REPORTED_COPIES,
      description:
        'copies of volumes that the agent deleted; without it, a copy of which `volumes` says ' +
        'nothing any more is gone',
    }),
  ),
  capabilities: Type.Optional(
    Type.Array(Type.String({ maxLength: 40 }), {
      maxItems: 32,
      description: 'features of the agent that are not part of the contract',
    }),
  ),
  disk: Type.Optional(NodeDisk),
  neighbours_etag: Type.Optional(
    Type.String({
      maxLength: 100,
      description:
        'of the last `neighbours`, or empty; absent: the agent closes no ports of other nodes',
    }),
  ),
  dataset_pins_etag: Type.Optional(
    Type.String({
      maxLength: 100,
      description: 'of the last `dataset_pins`, or empty; absent: the agent keeps no copies',
    }),
  ),
  publish_ip: Type.Optional(
    orNull(
      Type.String({
        maxLength: 253,
        description: 'address to which container ports are bound; null: all addresses',
      }),
    ),
  ),
  default_memory: Type.Optional(
    orNull(
      Type.Number({
        minimum: 0,
        description: 'memory limit in bytes of containers whose project sets none; null: no limit',
      }),
    ),
  ),
  ...MACHINE_REPORT,
});
export type NodeRegister = Static<typeof NodeRegister>;

/** Capability of an agent that sends `POST /api/agent/beat`. */
export const BEAT = 'beat';

/** A copy of a dataset to a node that a person requested (prewarm) or a project wants. */
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

/**
 * A container that only a person can remove: a contract-only agent started it, and no deployment
 * uses it any more.
 */
export const ContainerToRemove = Type.Object({
  node_id: Id,
  node: Type.String({ description: 'hostname' }),
  container: Type.String(),
  project_id: Id,
  project: Type.String({ description: 'name of the project, which may be deleted' }),
  since: Type.Unsafe<string>({
    ...Time,
    description: 'when its agent got the task that started it',
  }),
});
export type ContainerToRemove = Static<typeof ContainerToRemove>;

/**
 * The drain of a node. `left` lists the deployments that still run on the node with the state of
 * their move, the stopped projects with volumes on the node, the commands that have not ended, and
 * the containers that only a person can remove. A drain ends when `left` is empty.
 */
export const Drain = Type.Object({
  started_at: Time,
  finished_at: orNull(Time),
  moved: Type.Integer({ minimum: 0 }),
  left: Type.Array(
    Type.Object({
      project_id: Id,
      project: Type.String(),
      deployment_id: Id,
      moving_to: orNull(Type.String({ description: 'id of the deployment that will take over' })),
      problem: orNull(Type.String()),
      unmanaged_container: Type.Optional(
        Type.String({
          description: 'the container that only a person can remove; absent: another reason',
        }),
      ),
      run: Type.Optional(
        Type.String({ description: 'id of the run that has not ended; absent: another reason' }),
      ),
    }),
  ),
});
export type Drain = Static<typeof Drain>;

/** A command that has not ended on a node: a run, or the release command of a deployment. */
export const NodeCommand = Type.Object({
  project_id: Id,
  project: Type.String(),
  run_id: orNull(Type.String({ description: 'null: the release command of the deployment' })),
  deployment_id: Id,
  timeout_seconds: Type.Integer({ description: 'its longest time after its start' }),
});
export type NodeCommand = Static<typeof NodeCommand>;

export const Prewarm = Type.Object({ dataset_id: Id }, { additionalProperties: false });

/**
 * Datasets that a node would evict, least recently used first. `enough` is true if the eviction
 * frees `wanted_bytes`.
 */
export const CacheRoom = Type.Object({
  free_bytes: Type.Number(),
  wanted_bytes: Type.Number(),
  evict: Type.Array(CachedDataset),
  freed_bytes: Type.Number(),
  pinned_bytes: Type.Number(),
  enough: Type.Boolean(),
});
export type CacheRoom = Static<typeof CacheRoom>;

/**
 * The disk of a node: its usage, what an eviction would remove and why, and the volumes, which are
 * never evicted.
 */
export const NodeDiskView = Type.Object({
  disk: orNull(
    Type.Unsafe<NodeDisk>({ ...NodeDisk, description: 'null: the agent has not reported it' }),
  ),
  budget_bytes: Type.Number({
    description: 'MAX_STORAGE of the node: datasets, images and build cache share it',
  }),
  free_bytes: Type.Number({
    description: 'left of the budget; less than 0: more is used, and what is used cannot go',
  }),
  wanted_bytes: Type.Number(),
  enough: Type.Boolean({ description: 'the evictions free `wanted_bytes`' }),
  evict: Type.Array(
    Type.Object({
      kind: literals(['build_cache', 'image', 'dataset']),
      name: Type.String(),
      bytes: Type.Number(),
      why: Type.String(),
    }),
    { description: 'what would be evicted to make room for `bytes`, in order' },
  ),
  kept_bytes: Type.Number({
    description: 'bytes of datasets, images and build cache that are never evicted',
  }),
  copies: Type.Optional(
    Type.Array(
      Type.Object({
        dataset_id: Id,
        name: Type.String(),
        version: Type.Integer(),
        project: Type.String(),
        bytes: orNull(Type.Number({ description: 'null: not on the node yet' })),
        why: Type.String({ description: 'such as `copy for project shop`' }),
      }),
      { description: 'versions that are never evicted because a project wants copies' },
    ),
  ),
  volumes: Type.Array(
    Type.Object({
      project: Type.String(),
      name: Type.String(),
      bytes: orNull(Type.Number({ description: 'null: not counted yet' })),
      kept_of_deleted: Type.Boolean({
        description: 'the project is deleted; an admin may delete the folder',
      }),
      missing_since: Type.Optional(
        orNull({
          ...Time,
          description: 'the node reports without it since then; null: it is there',
        }),
      ),
    }),
  ),
  unavailable: Type.Optional(Type.String({ description: 'what this preview does not cover' })),
});
export type NodeDiskView = Static<typeof NodeDiskView>;

/** A failover that a person requests (`POST /api/nodes/{id}/failover`). */
export const NodeFailover = Type.Object(
  {
    machine_is_off: Type.Optional(
      Type.Boolean({
        description:
          'the machine has no power: also move the projects whose `on_node_lost` is `wait`, if ' +
          'they write nothing',
      }),
    ),
  },
  { additionalProperties: false },
);
const MovedInstance = {
  project_id: Id,
  project: Type.String(),
  process: Type.String(),
  number: Type.Integer(),
};
export const NodeFailoverAnswer = Type.Object({
  node_id: Id,
  node: Type.String({ description: 'hostname' }),
  moved: Type.Array(
    Type.Object({
      ...MovedInstance,
      to: orNull(Type.String({ description: 'hostname; null: no node can take it now' })),
    }),
  ),
  left: Type.Array(Type.Object({ ...MovedInstance, why: Type.String() }), {
    description: 'instances that wait for the node',
  }),
});
export type NodeFailoverAnswer = Static<typeof NodeFailoverAnswer>;

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
  ...MACHINE_VIEW,
  engine: orNull(NodeEngine),
  capabilities: orNull(Type.Array(Type.String(), { description: 'null if the agent sends none' })),
  disk: orNull(NodeDisk),
  has_secret: Type.Boolean({
    description:
      'true if the node has its own secret; requests for it with AGENT_SECRET then get 401',
  }),
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
          'another machine registers under this name and is refused; boot: two processes ' +
          'registered in turn; secret: it lacks the node’s own secret',
      },
    ),
  ),
  address_taken: Type.Optional(
    orNull(
      Type.Object(
        { node_id: Id, hostname: Type.String() },
        {
          description:
            'this deploy node is offline, and another one is online at its address: its routes ' +
            'end where that one has their port; absent in answers to the agent',
        },
      ),
    ),
  ),
  failover: Type.Optional(
    orNull(
      Type.Object(
        {
          silent_since: Time,
          held: Type.Boolean({
            description:
              'true: the brake holds it, because most nodes are silent; nothing of it moves until ' +
              'they return or an admin calls /failover',
          }),
          silent_nodes: Type.Integer({ description: 'nodes that became silent with it' }),
          nodes: Type.Integer({ description: 'of so many nodes that were online before' }),
          waiting: Type.Integer({ description: 'instances that wait for the node' }),
        },
        {
          description:
            'set while the agent of a deploy node sent no request for FAILOVER_AFTER; absent in ' +
            'answers to the agent',
        },
      ),
    ),
  ),
  node_secret: Type.Optional(
    Type.String({
      description: 'the node’s own secret; sent once, only in an answer to the agent',
    }),
  ),
  config_etag: Type.Optional(
    Type.String({
      description:
        'changes with GET /api/agent/config, so that the agent requests it again; only in ' +
        'answers to the agent',
    }),
  ),
  beat_seconds: Type.Optional(
    Type.Number({
      exclusiveMinimum: 0,
      description:
        'the agent sends POST /api/agent/beat at this interval; only in answers to the agent of a ' +
        'deploy node',
    }),
  ),
  neighbours: Type.Optional({
    ...Neighbours,
    description:
      `IPv4 addresses of deploy nodes, at most ${MAX_NEIGHBOURS}, if they differ from ` +
      `\`neighbours_etag\`; only in answers to the agent`,
  }),
  dataset_pins: Type.Optional({
    ...DatasetPins,
    description:
      'dataset versions that the node must keep, if they differ from `dataset_pins_etag`; only ' +
      'in answers to the agent',
  }),
  cached: Type.Array(CachedDataset),
  copy_rate: orNull(Type.Number()),
  copying: Type.Optional(
    Type.Array(NodeCopy, {
      description:
        'prewarm copies, including the last finished ones; absent in answers to the agent',
    }),
  ),
  drain: Type.Optional(orNull(Drain)),
  forget: Type.Optional(
    Type.Array(Id, {
      description: 'cached datasets that were deleted; only in answers to the agent',
    }),
  ),
  set_aside_volumes: Type.Optional(
    Type.Array(Id, {
      description:
        'copies that the node keeps, but may never mount again; only in answers to the agent',
    }),
  ),
  remove_volumes: Type.Optional(
    Type.Array(Id, { description: 'copies of volumes to delete; only in answers to the agent' }),
  ),
  containers: Type.Array(ObservedContainer),
  unmanaged: Type.Optional(
    Type.Array(ContainerToRemove, {
      description:
        'containers that only a person can remove, until an admin confirms that they are gone; ' +
        'absent in answers to the agent',
    }),
  ),
  commands: Type.Optional(
    Type.Array(NodeCommand, {
      description:
        'runs and release commands that have not ended there; a drain waits for them; absent in ' +
        'lists and in answers to the agent',
    }),
  ),
  open_tasks: Type.Optional(
    Type.String({
      description:
        'only in answers to the agent: its open tasks as of a few seconds ago, one per line; ' +
        'an agent with a different list requests its tasks again',
    }),
  ),
  quarantined: Type.Optional(
    Type.Array(Type.String(), {
      description:
        'names of containers whose deployment the control plane does not know; Berth leaves ' +
        'them alone until a person removes them; absent in answers to the agent',
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

/**
 * Counts the nodes that the placement record does not list: the eligible nodes, and the refused
 * nodes by reason.
 */
const LeftOut = Type.Object({
  eligible: Type.Integer(),
  refused: Type.Record(Type.String(), Type.Integer()),
});
export const Placement = Type.Object({
  items: Type.Array(PlacementRow),
  winner: orNull(Id),
  left_out: Type.Optional(LeftOut),
  note: Type.Optional(
    Type.String({ description: 'of a preview: how the deployment would get the room it needs' }),
  ),
});
export type Placement = Static<typeof Placement>;
