/** Volumes: folders on the disk of a deploy node that outlive the deployments of their project. */
import { type Static, Type } from 'typebox';
import { Value } from 'typebox/value';
import { ById, ByName, type Route } from './route.ts';
import { DnsLabel, Id, listOf, literals, orNull, Time } from './vocabulary.ts';

/** Capability of an agent that mounts volumes. */
export const CAN_VOLUMES = 'volumes';
/** Capability of an agent that sends and receives copies of volumes. */
export const CAN_MOVE_VOLUMES = 'volume_moves';

/**
 * The volumes of a deploy task. `copy` identifies the folders: the agent mounts only a folder with
 * this id, so that it never mounts a copy that a move left behind. `create`: the agent can create a
 * missing folder; otherwise a missing folder is an error.
 */
export const VolumeMounts = Type.Object({
  copy: Id,
  mounts: Type.Array(
    Type.Object({ name: DnsLabel, mount_path: Type.String(), create: Type.Boolean() }),
  ),
});
export type VolumeMounts = Static<typeof VolumeMounts>;

/**
 * A copy on the disk of a node, as its agent reports it. `bytes` is null before the first
 * measurement.
 */
export const ReportedCopy = Type.Object({
  copy: Id,
  project_id: Id,
  in_place: Type.Boolean({ description: 'false: the copy is set aside, and no task can mount it' }),
  folders: Type.Array(Type.Object({ name: DnsLabel, bytes: orNull(Type.Number({ minimum: 0 })) }), {
    maxItems: 200,
  }),
});
export type ReportedCopy = Static<typeof ReportedCopy>;
export const MAX_REPORTED_COPIES = 1_000;

/**
 * in_use: the current data of a project; incoming: being received; old: left behind by a move;
 * kept: belongs to a deleted project; deleting: the node is deleting it.
 */
export const VOLUME_STATES = ['in_use', 'incoming', 'old', 'kept', 'deleting'] as const;
export type VolumeState = (typeof VOLUME_STATES)[number];
/** The volumes of one project on one node. */
export const NodeVolumes = Type.Object({
  copy: Id,
  project_id: Id,
  project: Type.String({ description: 'name of the project, which may be deleted' }),
  state: literals(VOLUME_STATES),
  folders: Type.Array(Type.Object({ name: Type.String(), bytes: orNull(Type.Number()) })),
  bytes: orNull(Type.Number({ description: 'null: not counted yet' })),
  missing_since: Type.Optional(
    orNull({
      ...Time,
      description:
        'the node reports without them since then: its disk may not be mounted; null: they are ' +
        'there',
    }),
  ),
  kept_of_deleted: Type.Boolean({
    description: 'the project is deleted; an admin may delete the folders',
  }),
  changed_at: Time,
});
export type NodeVolumes = Static<typeof NodeVolumes>;

/**
 * Payload of a `move` task. One agent sends the folders of the copy `copy`, and the agent of
 * another node receives them as the new copy `to`. Both report the digest of their files at the
 * end.
 */
export const MovePayload = Type.Object({
  project_id: Id,
  project: Type.String(),
  role: literals(['send', 'receive']),
  copy: Id,
  to: Id,
  other: Type.String({ description: 'hostname of the other end' }),
  bytes: orNull(
    Type.Number({ description: 'size of the folders by the last report; null: unknown' }),
  ),
});
export type MovePayload = Static<typeof MovePayload>;

/**
 * `result` of a completed `move` task. `digest` covers path, type, mode, owner, size and content of
 * every file.
 */
export const MoveResult = Type.Object({
  digest: Type.String({ pattern: '^[0-9a-f]{64}$' }),
  files: Type.Integer({ minimum: 0 }),
  bytes: Type.Number({ minimum: 0 }),
});
export type MoveResult = Static<typeof MoveResult>;
export const isMoveResult = (value: unknown): value is MoveResult => Value.Check(MoveResult, value);

/**
 * Maximum size of a chunk. The folders are sent as a tar stream in numbered chunks. A sender that
 * starts again uses a new `stream`.
 */
export const MAX_CHUNK_BYTES = 4 * 1_048_576;
/** Longest time in seconds that the control plane holds a chunk or a request for a chunk. */
export const CHUNK_HOLD_SECONDS = 20;
const Number0 = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });
export const CHUNK_HEADERS = {
  stream: 'x-chunk-stream',
  number: 'x-chunk-number',
  last: 'x-chunk-last',
} as const;

/**
 * taken: send the next chunk; wait: send this chunk again; restart: the receiver starts again, so
 * send a new stream.
 */
export const CHUNK_ANSWERS = ['taken', 'wait', 'restart'] as const;
export type ChunkAnswer = (typeof CHUNK_ANSWERS)[number];

export const VOLUME_ROUTES = {
  nodeVolumes: {
    method: 'GET',
    path: '/api/nodes/:id/volumes',
    who: 'admin',
    scope: 'list',
    summary:
      'List the volumes on a node, also those of deleted projects and those that a move left ' +
      'behind',
    params: ByName,
    status: 200,
    answer: listOf(NodeVolumes),
  },
  deleteNodeVolumes: {
    method: 'DELETE',
    path: '/api/nodes/:id/volumes/:copy',
    who: 'admin',
    scope: 'list',
    summary:
      'Delete volumes of a deleted project, or old ones that a move left behind; volumes in ' +
      'use are refused',
    params: Type.Object({ ...ByName.properties, copy: Id }),
    query: Type.Object({
      forget: Type.Optional(
        Type.Boolean({
          description:
            'forget volumes that are missing, because their disk is lost; the node is not ' +
            'asked to delete them',
        }),
      ),
    }),
    status: 202,
    location: '/api/nodes/:id/volumes',
    answer: NodeVolumes,
  },
  agentSendChunk: {
    method: 'POST',
    path: '/api/agent/tasks/:id/chunks',
    who: 'agent',
    scope: 'none',
    summary:
      'Send a chunk of a volume that moves; held until the other end has taken it (X-Lease-Token)',
    params: ById,
    query: Type.Object({ stream: Id, number: Number0, last: Type.Optional(Type.Boolean()) }),
    rawBody: true,
    status: 200,
    answer: Type.Object({ next: literals(CHUNK_ANSWERS) }),
  },
  agentTakeChunk: {
    method: 'GET',
    path: '/api/agent/tasks/:id/chunks',
    who: 'agent',
    scope: 'none',
    summary:
      'Take a chunk of a volume that moves, and confirm all chunks before it; 204 if there is ' +
      'none yet (X-Lease-Token)',
    params: ById,
    query: Type.Object({
      stream: Type.Optional(Id),
      number: Number0,
      hold: Type.Optional(
        Type.Number({
          minimum: 0,
          maximum: CHUNK_HOLD_SECONDS,
          description: 'seconds to hold the request',
        }),
      ),
    }),
    status: 200,
  },
} as const satisfies Record<string, Route>;
