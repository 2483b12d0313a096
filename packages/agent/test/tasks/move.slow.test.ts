/** Both ends of a move with real files and GNU tar; the control plane in between is a map. */
import {
  chmod,
  chown,
  link,
  lstat,
  mkdir,
  mkdtemp,
  readFile,
  rm,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { MoveResult } from '@berth/wire/volume';
import type { TaskOf } from '@berth/wire/task';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { ChunkClient, TakenChunk } from '../../src/data/volumes/chunks.ts';
import { createVolumes, type Volumes } from '../../src/data/volumes/volumes.ts';
import { createLocks } from '../../src/locks.ts';
import { createMoveHandler } from '../../src/tasks/move.ts';
import type { ListNodeContainers } from '../../src/engine/node-ids.ts';

const isRoot = process.getuid?.() === 0;
let root: string;
let ends: { from: Volumes; to: Volumes };
beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'berth-move-'));
  await Promise.all(['from', 'to'].map((name) => mkdir(join(root, name))));
  ends = {
    from: await createVolumes(join(root, 'from')),
    to: await createVolumes(join(root, 'to')),
  };
  await ends.from.mounts(
    'p1',
    { copy: 'v1', mounts: [{ name: 'data', mount_path: '/data', create: true }] },
    async () => (isRoot ? 33 : (process.getuid?.() ?? 0)),
  );
  await writeFile(at('from', 'small'), 'hello');
  await writeFile(at('from', 'large'), Buffer.alloc(9_000_000, 'x'));
});
afterEach(() => rm(root, { recursive: true, force: true }));

const at = (end: 'from' | 'to', path: string): string => join(root, end, 'volumes/p1/data', path);

/** Holds one chunk, like the control plane. */
function createPipe(): ChunkClient {
  let offer: { chunk: TakenChunk; taken: (a: 'taken' | 'restart') => void } | null = null;
  return {
    send: (_, chunk) => new Promise((resolve) => (offer = { chunk, taken: resolve })),
    async take({ signal }, { stream, number, wait }) {
      for (let i = 0; i < 2_000; i += 1) {
        signal.throwIfAborted();
        if (offer !== null && offer.chunk.stream === stream && offer.chunk.number === number - 1) {
          offer.taken('taken');
          offer = null;
        }
        if (wait === 0) return null;
        if (offer !== null && offer.chunk.stream === stream && offer.chunk.number === number)
          return offer.chunk;
        if (offer !== null && offer.chunk.stream !== stream && offer.chunk.number === 0)
          return offer.chunk;
        if (offer !== null) {
          offer.taken('restart');
          offer = null;
        }
        await new Promise((resolve) => void setTimeout(resolve, 1));
      }
      return null;
    },
  };
}

const task = (role: 'send' | 'receive', copy = 'v1', to = 'v2'): TaskOf<'move'> =>
  ({
    id: `t-${role}`,
    kind: 'move',
    payload: { project_id: 'p1', project: 'shop', role, copy, to, other: 'away', bytes: null },
  }) as TaskOf<'move'>;
function run(
  role: 'send' | 'receive',
  chunks: ChunkClient,
  {
    state = 'exited',
    signal = new AbortController().signal,
    copy = 'v1',
    to = 'v2',
    flip = false,
  } = {},
) {
  const listContainers = (async () => [
    { name: 'svc-shop', state },
  ]) as unknown as ListNodeContainers;
  const volumes = (role === 'send') !== flip ? ends.from : ends.to;
  const handler = createMoveHandler({
    volumes,
    chunks,
    listContainers,
    locks: createLocks(),
    inherit: process.env,
    stallMs: 20_000,
  });
  return handler(task(role, copy, to), {
    attempt: 1,
    lease: 'lease',
    signal,
    secrets: [],
    secretsDigest: null,
    log: () => undefined,
    logStep: () => undefined,
    progress: () => undefined,
    learned: () => undefined,
    room: () => null,
    note: () => undefined,
  });
}
const digests = async (runs: ReturnType<typeof run>[]): Promise<MoveResult[]> =>
  (await Promise.all(runs)).map(({ report }) => report.result as unknown as MoveResult);

describe('a move', () => {
  it('gives the other node equal files: content, links, modes and owners, and both ends report the same digest', async () => {
    await mkdir(at('from', 'sub'), { mode: 0o700 });
    await symlink('../large', at('from', 'sub/link'));
    await link(at('from', 'small'), at('from', 'sub/same'));
    await writeFile(at('from', 'sub/ümläut\nfile'), '');
    await chmod(at('from', 'small'), 0o4640);
    const socket = createServer().listen(at('from', 'socket'));
    await new Promise((resolve) => socket.once('listening', resolve));
    if (isRoot) await chown(at('from', 'large'), 1234, 4321);
    const pipe = createPipe();
    const [sent, received] = await digests([run('send', pipe), run('receive', pipe)]);
    socket.close();
    expect(received).toEqual(sent);
    expect(sent?.files).toBe(4);
    const [large, small, same] = await Promise.all(
      ['large', 'small', 'sub/same'].map((path) => lstat(at('to', path))),
    );
    expect([small?.mode, small?.ino]).toEqual([0o104640, same?.ino]);
    expect([large?.uid, large?.gid]).toEqual([1234, 4321].map((id) => (isRoot ? id : large?.uid)));
    // The mark of the new copy: only it is mounted from now on.
    expect(
      JSON.parse(await readFile(join(root, 'to/volumes/p1/.copy.json'), 'utf8')),
    ).toMatchObject({ copy: 'v2', moved: received });
    expect(await readFile(at('from', 'small'), 'utf8')).toBe('hello');
    // A repeated attempt reports the same and receives nothing.
    expect(await digests([run('receive', createPipe())])).toEqual([received]);
  });

  it('back to the first node keeps the older copy there', async () => {
    const pipe = createPipe();
    await digests([run('send', pipe), run('receive', pipe)]);
    await writeFile(at('to', 'small'), 'newer');
    const back = { copy: 'v2', to: 'v3', flip: true };
    const [sent, received] = await digests([run('send', pipe, back), run('receive', pipe, back)]);
    expect(received).toEqual(sent);
    expect(await readFile(at('from', 'small'), 'utf8')).toBe('newer');
    expect(await readFile(join(root, 'from/volumes/.left/v1/data/small'), 'utf8')).toBe('hello');
  });

  it('starts over when the receiver was stopped in the middle', async () => {
    const pipe = createPipe();
    const sending = run('send', pipe);
    const stop = new AbortController();
    let count = 0;
    const cut: ChunkClient = {
      ...pipe,
      take(of, given) {
        if ((count += 1) === 2) stop.abort(new Error('killed'));
        return pipe.take(of, given);
      },
    };
    await expect(run('receive', cut, { signal: stop.signal })).rejects.toThrow('killed');
    const [sent, received] = await digests([sending, run('receive', pipe)]);
    expect(received).toEqual(sent);
  });

  it('starts over when the sender was stopped in the middle', async () => {
    const pipe = createPipe();
    const stop = new AbortController();
    let count = 0;
    const cut: ChunkClient = {
      ...pipe,
      send(of, chunk) {
        if ((count += 1) === 2) stop.abort(new Error('killed'));
        return stop.signal.aborted
          ? Promise.reject(stop.signal.reason as Error)
          : pipe.send(of, chunk);
      },
    };
    const receiving = run('receive', pipe);
    await expect(run('send', cut, { signal: stop.signal })).rejects.toThrow('killed');
    const [sent, received] = await digests([run('send', pipe), receiving]);
    expect(received).toEqual(sent);
  });

  it.each([
    ['a container of the project runs', { state: 'running' }, 'may write to the volumes'],
    ['the folders are another copy', { copy: 'v9' }, 'is not the copy v9'],
  ])('is refused while %s', async (_, how, text) => {
    await expect(run('send', createPipe(), how)).rejects.toThrow(text);
  });

  it('that fails leaves nothing, and removes nothing that it did not bring', async () => {
    await mkdir(join(root, 'to/volumes/p1/data'), { recursive: true });
    const pipe = createPipe();
    const sending = run('send', pipe);
    await expect(run('receive', pipe)).rejects.toThrow('Berth does not know them');
    await sending;
    await expect(lstat(join(root, 'to/volumes/.incoming/v2'))).rejects.toThrow('ENOENT');
    expect((await lstat(join(root, 'to/volumes/p1/data'))).isDirectory()).toBe(true);
  });
});
