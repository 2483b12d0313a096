/**
 * Routes of agents for moving volumes: one sends chunks, the other takes them
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
import { type Define, SENT } from '../define.ts';
import type { ApiDeps } from '../deps.ts';
import type { Holds } from '../long-poll.ts';
import { requiredToken } from '../lease-token.ts';
import { createVolumeChannels } from '../volume-channels.ts';

export function agentVolumeRoutes(
  route: Define,
  deps: Pick<ApiDeps, 'stores' | 'changes'> & { agents: Agents; holds: Holds },
): void {
  const { stores, changes, agents, holds } = deps;
  const channels = createVolumeChannels(changes);

  async function moveOf(
    request: FastifyRequest,
    taskId: string,
    role: MovePayload['role'],
  ): Promise<MovePayload> {
    await agents.checkTask(request, taskId);
    const task = await stores.tasks.get(taskId);
    if (task.lease_token !== requiredToken(request)) throw new DomainError('stale_lease');
    if (!isOpenTask(task.status))
      throw new DomainError('task_over', `the task is already ${task.status}`);
    const payload = task.kind === 'move' ? (task.payload as MovePayload) : null;
    if (payload?.role !== role)
      throw new DomainError('wrong_state', `the task does not ${role} volumes`);
    return payload;
  }

  route(
    'agentSendChunk',
    async ({ params, query, request, reply }) => {
      const move = await moveOf(request, params.id, 'send');
      const hold = holds.begin('tasks', reply.raw);
      if (hold === null) throw new DomainError('too_many_requests');
      try {
        // It has reported; what a sender that begins again sends is not needed. It reads the files
        // once more and reports too.
        if (await hasArrived(move)) {
          await readChunk(request);
          return { next: 'taken' as const };
        }
        const until = { ms: CHUNK_HOLD_SECONDS * 1000, signal: hold.signal };
        const { stream, number, last = false } = query;
        const next = await channels.send(
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
    },
    { bodyLimit: MAX_CHUNK_BYTES },
  );

  async function hasArrived({ project_id, to }: MovePayload): Promise<boolean> {
    const copies = await stores.volumes.ofProject(project_id);
    return (copies.find((copy) => copy.id === to)?.digest ?? null) !== null;
  }

  route('agentTakeChunk', async ({ params, query, request, reply }) => {
    const move = await moveOf(request, params.id, 'receive');
    const hold = holds.begin('tasks', reply.raw);
    if (hold === null) throw new DomainError('too_many_requests');
    try {
      const until = { ms: (query.hold ?? 0) * 1000, signal: hold.signal };
      const chunk = await channels.take(
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
  });
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
