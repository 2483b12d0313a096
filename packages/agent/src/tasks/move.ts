/**
 * Task `move`: copies the volumes of a project to another node. Both nodes have a task, and the
 * control plane passes on the bytes.
 *
 *   send      check that no container of the project runs -> tar -> chunks ->
 *             read all files again -> report their digest
 *   receive   chunks -> tar below volumes/.incoming -> flush -> read all files ->
 *             rename to the final place -> report their digest
 *
 * The control plane uses the new copy only if both digests are equal. The sender changes no files.
 * If sender or receiver restarts, a new stream begins.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { failPoint } from '@berth/kit/fail-point';
import { LABELS } from '@berth/wire/vocabulary';
import { MAX_CHUNK_BYTES, type MoveResult } from '@berth/wire/volume';
import type { TaskOf } from '@berth/wire/task';
import type { ChunkClient, TakenChunk } from '../data/volumes/chunks.ts';
import { digestOf, packFolders, unpackFolders } from '../data/volumes/files.ts';
import { syncFileSystem } from '../file-system.ts';
import type { Volumes } from '../data/volumes/volumes.ts';
import type { Locks } from '../locks.ts';
import type { ListNodeContainers } from '../engine/node-ids.ts';
import { retryUntilAnswered } from '../link/retry.ts';
import { Stopped } from '../stopped.ts';
import { TaskFailure } from '../failures.ts';
import { type Handler, nothingToDiscard, type TaskContext } from './task.ts';

export type MoveDeps = {
  /** Null on a node without volumes. */
  volumes: Volumes | null;
  chunks: ChunkClient;
  listContainers: ListNodeContainers;
  locks: Locks;
  inherit: NodeJS.ProcessEnv;
  /** The task fails after this time in ms without a chunk. */
  stallMs?: number;
};
type MoveTask = TaskOf<'move'>;
type Of = { taskId: string; lease: string; signal: AbortSignal };

const STALL_MS = 5 * 60_000;
const MAX_RESTARTS = 10;
/**
 * Pause in ms between two requests of a receiver whose chunk is at a different control plane than
 * the one that answered.
 */
const AGAIN_MS = 20;

/** Thrown when the other node has restarted the transfer. */
class Restart extends Error {
  override name = 'Restart';
  readonly chunk: TakenChunk | null;
  constructor(chunk: TakenChunk | null) {
    super('the other node restarted the transfer');
    this.chunk = chunk;
  }
}

export function createMoveHandler(deps: MoveDeps): Handler<'move'> {
  return async (task, context) => {
    const { volumes } = deps;
    if (volumes === null)
      throw new TaskFailure(
        'agent_cannot',
        'this agent cannot write to SVC_ROOT, so it has no volumes',
      );
    const unlock = await deps.locks.acquire(`volumes ${task.payload.project_id}`, context.signal);
    try {
      const parts = { ...deps, volumes, stallMs: deps.stallMs ?? STALL_MS };
      const result = await (task.payload.role === 'send'
        ? send(parts, task, context)
        : receive(parts, task, context));
      return {
        report: { status: 'completed', result: result as Record<string, unknown> },
        discard: nothingToDiscard,
      };
    } finally {
      unlock();
    }
  };
}

type Parts = MoveDeps & { volumes: Volumes; stallMs: number };
const ofTask = (task: MoveTask, { lease = '', signal }: TaskContext): Of => ({
  taskId: task.id,
  lease,
  signal,
});
const stalled = (task: MoveTask): TaskFailure =>
  new TaskFailure(
    'volume_failed',
    `${task.payload.other} did not ${task.payload.role === 'send' ? 'take' : 'send'} data for ` +
      'too long',
  );

async function send(parts: Parts, task: MoveTask, context: TaskContext): Promise<MoveResult> {
  const { payload } = task;
  const { signal, logStep } = context;
  const { root, names } = await parts.volumes.outgoing(payload.project_id, payload.copy);
  const running = (
    await parts.listContainers({ [LABELS.project]: payload.project_id }, signal)
  ).find((c) => c.state === 'running');
  if (running !== undefined)
    throw new TaskFailure(
      'volume_failed',
      `${running.name} still runs and may write to the volumes`,
    );
  await failPoint('move.send');
  logStep('move', `sending ${names.join(', ')} to ${payload.other}`);
  for (let attempt = 0; ; attempt += 1) {
    try {
      await sendStream(parts, task, context, { root, names });
      break;
    } catch (error) {
      if (!(error instanceof Restart)) throw error;
      if (attempt === MAX_RESTARTS) throw stalled(task);
      logStep('move', `${payload.other} restarted the transfer; sending everything again`);
    }
  }
  await failPoint('move.sent');
  return digestOf(root, names, signal);
}

async function sendStream(
  parts: Parts,
  task: MoveTask,
  context: TaskContext,
  { root, names }: { root: string; names: string[] },
) {
  const { chunks, inherit, stallMs } = parts;
  const { signal } = context;
  const of = ofTask(task, context);
  const stream = randomUUID();
  let number = 0;
  let waiting: Buffer[] = [];
  let size = 0;
  const pass = async (bytes: Buffer, last: boolean): Promise<void> => {
    for (const since = performance.now(); ; ) {
      const next = await retryUntilAnswered(
        () => chunks.send(of, { stream, number, last, bytes }),
        { signal, maxMs: 2_000 },
      );
      if (next === 'restart') throw new Restart(null);
      if (next === 'taken') break;
      if (performance.now() - since > stallMs) throw stalled(task);
    }
    number += 1;
  };
  await packFolders(root, names, {
    inherit,
    signal,
    async onOutput(bytes) {
      waiting.push(bytes);
      size += bytes.length;
      if (size < MAX_CHUNK_BYTES) return;
      const all = Buffer.concat(waiting, size);
      const rest = all.subarray(MAX_CHUNK_BYTES);
      [waiting, size] = [[rest], rest.length];
      await pass(all.subarray(0, MAX_CHUNK_BYTES), false);
    },
  });
  await pass(Buffer.concat(waiting, size), true);
}

async function receive(parts: Parts, task: MoveTask, context: TaskContext): Promise<MoveResult> {
  const { volumes, inherit } = parts;
  const { project_id, to, other } = task.payload;
  const { signal, logStep } = context;
  const arrived = await volumes.arrived(project_id, to);
  if (arrived !== null) return arrived;
  const incoming = volumes.incoming(to);
  try {
    let whole = await incoming.whole();
    if (whole === null) {
      logStep('move', `receiving the volumes from ${other}`);
      await receiveAll(parts, task, context);
      whole = await incoming.whole();
    }
    if (whole === null) throw new Error('the received copy is not complete');
    await failPoint('move.received');
    const result = await digestOf(whole.root, whole.names, signal);
    await syncFileSystem(whole.root, inherit, signal);
    await failPoint('move.verified');
    await volumes.finish(project_id, to, result);
    await failPoint('move.finished');
    logStep('move', `received ${result.files} files, ${result.bytes} bytes`);
    return result;
  } catch (error) {
    // After a shutdown, the next attempt continues with the received files. In all other cases they
    // are removed.
    if (signal.aborted && signal.reason instanceof Stopped && signal.reason.why === 'shutdown')
      throw error;
    await incoming
      .discard()
      .catch((e: unknown) => logStep('move', `removing the incomplete copy failed: ${String(e)}`));
    throw error;
  }
}

/** Receives one complete stream. Restarts if the sender restarts. */
async function receiveAll(parts: Parts, task: MoveTask, context: TaskContext): Promise<void> {
  const { volumes, inherit } = parts;
  const { signal } = context;
  const of = ofTask(task, context);
  const incoming = volumes.incoming(task.payload.to);
  let first: TakenChunk | null = null;
  for (let attempt = 0; attempt <= MAX_RESTARTS; attempt += 1) {
    const root = await incoming.begin();
    let end: { stream: string; number: number } | null = null;
    async function* bytes(): AsyncGenerator<Uint8Array> {
      let chunk: TakenChunk = first ?? (await next(parts, task, of, { stream: null, number: 0 }));
      const { stream } = chunk;
      for (let number = 0; ; number += 1) {
        await failPoint('move.receive');
        yield chunk.bytes;
        if (chunk.last) {
          end = { stream, number: number + 1 };
          return;
        }
        chunk = await next(parts, task, of, { stream, number: number + 1 });
        if (chunk.stream !== stream) throw new Restart(chunk);
      }
    }
    try {
      await unpackFolders(root, bytes(), { inherit, signal });
    } catch (error) {
      if (!(error instanceof Restart)) throw error;
      first = error.chunk;
      continue;
    }
    if (end === null) throw new TaskFailure('volume_failed', 'tar ended before the data did');
    await syncFileSystem(root, inherit, signal);
    await incoming.complete();
    // Confirms the last chunk. If the confirmation is lost, the report of this task replaces it.
    await parts.chunks
      .take(of, { ...(end as { stream: string; number: number }), wait: 0 })
      .catch(() => null);
    return;
  }
  throw stalled(task);
}

async function next(
  { chunks, stallMs }: Parts,
  task: MoveTask,
  of: Of,
  at: { stream: string | null; number: number },
): Promise<TakenChunk> {
  for (const since = performance.now(); ; ) {
    const chunk = await retryUntilAnswered(() => chunks.take(of, at), {
      signal: of.signal,
      maxMs: 2_000,
    });
    if (chunk !== null) return chunk;
    if (performance.now() - since > stallMs) throw stalled(task);
    await sleep(AGAIN_MS, undefined, { signal: of.signal });
  }
}
