/**
 * Routes of agents for moving volumes: the sender posts chunks, the receiver takes them
 * (api/volume-channels.ts).
 */
import type { IncomingMessage } from 'node:http';
import { failPoint } from '@berth/kit/fail-point';
import {
  CHUNK_HEADERS,
  CHUNK_HOLD_SECONDS,
  MAX_CHUNK_BYTES,
  type MovePayload,
} from '@berth/wire/volume';
import { isOpenTask } from '@berth/wire/vocabulary';
import type { FastifyRequest } from 'fastify';
import { DomainError } from '../../domain/platform/errors.ts';
import type { Agents } from '../agents.ts';
import { type Define, SENT, type Call } from '../define.ts';
import type { Holds } from '../long-poll.ts';
import { requiredToken } from '../lease-token.ts';
import { createVolumeChannels, type VolumeChannels } from '../volume-channels.ts';
import type { TaskStore } from '../../domain/deployments/task-store.ts';
import type { VolumeStore } from '../../domain/data/volume-store.ts';
import type { Changes } from '../../domain/platform/changes.ts';

export type Deps = {
  tasks: Pick<TaskStore, 'get'>;
  volumes: Pick<VolumeStore, 'ofProject'>;
  changes: Changes;
  holds: Pick<Holds, 'begin'>;
  agents: Pick<Agents, 'checkTask'>;
};

/** State shared by all requests. */
type Context = Deps & {
  channels: VolumeChannels;
};

export function agentVolumeRoutes(route: Define, deps: Deps): void {
  const channels = createVolumeChannels(deps.changes);
  const context: Context = { ...deps, channels };
  route('agentSendChunk', (call) => agentSendChunk(context, call), { bodyLimit: MAX_CHUNK_BYTES });
  route('agentTakeChunk', (call) => agentTakeChunk(context, call));
}

async function moveOf(
  deps: Deps,
  request: FastifyRequest,
  taskId: string,
  role: MovePayload['role'],
): Promise<MovePayload> {
  await deps.agents.checkTask(request, taskId);
  const task = await deps.tasks.get(taskId);
  if (task.lease_token !== requiredToken(request)) throw new DomainError('stale_lease');
  if (!isOpenTask(task.status))
    throw new DomainError('task_over', `the task is already ${task.status}`);
  const payload = task.kind === 'move' ? (task.payload as MovePayload) : null;
  if (payload?.role !== role)
    throw new DomainError('wrong_state', `the task does not ${role} volumes`);
  return payload;
}

async function agentSendChunk(
  context: Context,
  { params, query, request, reply }: Call<'agentSendChunk'>,
) {
  const move = await moveOf(context, request, params.id, 'send');
  const hold = context.holds.begin('tasks', reply.raw);
  if (hold === null) throw new DomainError('too_many_requests');
  try {
    // The receiver has reported arrival. A sender that starts again reads the files once more and
    // then reports too, but its chunks are not needed.
    if (await hasArrived(context, move)) {
      await readChunk(request);
      return { next: 'taken' as const };
    }
    const until = { ms: CHUNK_HOLD_SECONDS * 1000, signal: hold.signal };
    const { stream, number, last = false } = query;
    const next = await context.channels.send(
      move.to,
      async () => ({ stream, number, last, bytes: await readChunk(request) }),
      until,
    );
    await failPoint('move.chunk');
    void reply.removeHeader('connection');
    return { next };
  } finally {
    hold.release();
  }
}

async function hasArrived(deps: Deps, { project_id, to }: MovePayload): Promise<boolean> {
  const copies = await deps.volumes.ofProject(project_id);
  return (copies.find((copy) => copy.id === to)?.digest ?? null) !== null;
}

async function agentTakeChunk(
  context: Context,
  { params, query, request, reply }: Call<'agentTakeChunk'>,
) {
  const move = await moveOf(context, request, params.id, 'receive');
  const hold = context.holds.begin('tasks', reply.raw);
  if (hold === null) throw new DomainError('too_many_requests');
  try {
    const until = { ms: (query.hold ?? 0) * 1000, signal: hold.signal };
    const chunk = await context.channels.take(
      move.to,
      { stream: query.stream ?? null, number: query.number },
      until,
    );
    if (chunk === null) void reply.code(204).send();
    else
      void reply
        .headers({
          'content-type': 'application/octet-stream',
          [CHUNK_HEADERS.stream]: chunk.stream,
          [CHUNK_HEADERS.number]: String(chunk.number),
          [CHUNK_HEADERS.last]: String(chunk.last),
        })
        .send(chunk.bytes);
    return SENT;
  } finally {
    hold.release();
  }
}

async function readChunk(request: FastifyRequest): Promise<Buffer> {
  const parts: Buffer[] = [];
  let size = 0;
  const body = request.body as IncomingMessage | undefined | null;
  if (body !== undefined && body !== null)
    for await (const part of body as AsyncIterable<Buffer>) {
      size += part.length;
      if (size > MAX_CHUNK_BYTES) throw new DomainError('body_too_large');
      parts.push(part);
    }
  return Buffer.concat(parts, size);
}
