/**
 * Clean-up with the real registry: images go and stay, a push in the middle is refused and loses
 * nothing, and kills at each step.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { toolsDir } from '@berth/testbed/config';
import { missingParts as missingIn, type PushedImage, pushImage } from '@berth/testbed/images';
import { type Registry, registryProgram, startRegistry } from '@berth/testbed/registry';
import { waitFor } from '@berth/testbed/wait';
import type { TaskOf } from '@berth/wire/task';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type FakeControlPlane, startFakeControlPlane } from '../fake-control-plane.ts';

const MAIN = join(import.meta.dirname, '..', '..', 'src', 'main.ts');
const KB = 1024;
const LATE = { deadlineMs: 100_000 };
const layer = (): Buffer => randomBytes(64 * KB);

describe.skipIf(registryProgram() === undefined)('a clean-up of the registry', () => {
  let dir: string;
  let registry: Registry;
  let plane: FakeControlPlane;
  let base: Buffer;
  const agents: ChildProcess[] = [];
  let output = '';
  beforeEach(async () => {
    dir = await mkdtemp(join(tmpdir(), 'berth-clean-'));
    base = layer();
    output = '';
  });
  afterEach(async ({ task }) => {
    if (task.result?.state === 'fail') console.error(output.slice(-6_000));
    for (const agent of agents.splice(0)) {
      agent.kill('SIGKILL');
      if (agent.exitCode === null && agent.signalCode === null) await once(agent, 'exit');
    }
    await plane?.stop();
    await registry?.stop();
    await rm(dir, { recursive: true, force: true });
  });

  /** `shown`: REGISTRY_ADDR, where the agent does not reach the registry at its address. */
  async function begin({
    shown,
    ...options
  }: {
    deletes?: boolean;
    shown?: string;
  } = {}): Promise<void> {
    registry = await startRegistry({
      dir: join(dir, 'registry'),
      restarts: true,
      user: 'berth',
      password: 'a secret of the registry',
      ...options,
    });
    plane = await startFakeControlPlane({
      leaseMs: 3_000,
      config: {
        registry_addr: shown ?? registry.address,
        registry_user: 'berth',
        registry_password: registry.password ?? '',
      },
    });
  }
  /** An agent without an engine. */
  function agent(failPoints = '', settings: NodeJS.ProcessEnv = {}): ChildProcess {
    const child = spawn(process.execPath, [MAIN], {
      env: {
        PATH: `${toolsDir}:${process.env['PATH']}`,
        NODE_ROLE: 'builder',
        CONTROL_PLANE_URL: plane.url,
        STATE_DIR: join(dir, 'state'),
        SECRETS_DIR: join(dir, 'secrets'),
        SVC_ROOT: join(dir, 'svc'),
        DOCKER_HOST: `unix://${join(dir, 'no.sock')}`,
        HOST_IP: '127.0.0.1',
        REGISTRY_CONFIG: registry.config,
        REGISTRY_RESTART: (registry.restart ?? []).join(' '),
        BERTH_FAIL_POINTS: failPoints,
        LOG_FORMAT: 'json',
        ...settings,
      },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    child.stdout?.on('data', (d) => (output += String(d)));
    child.stderr?.on('data', (d) => (output += String(d)));
    agents.push(child);
    return child;
  }
  const push = (tag: string): Promise<PushedImage> =>
    pushImage(registry, 'shop', tag, [base, layer()]);
  const clean = (remove: PushedImage[], keep: PushedImage[]): TaskOf<'clean'> => ({
    id: `clean-${randomBytes(4).toString('hex')}`,
    kind: 'clean',
    status: 'pending',
    node_id: plane.nodeId,
    deployment_id: null,
    attempt: 0,
    cancel_requested: false,
    created_at: new Date().toISOString(),
    payload: {
      clean_up_id: 'c',
      repositories: [
        {
          repository: 'shop',
          remove: remove.map((i) => i.digest),
          keep: keep.map((i) => i.digest),
          keep_tags: [],
        },
      ],
    },
  });
  const nothingToClean = (): TaskOf<'clean'> => ({
    ...clean([], []),
    payload: { clean_up_id: 'c', repositories: [] },
  });
  const isReadOnly = async (): Promise<boolean> =>
    (await readFile(registry.config, 'utf8')).includes('readonly');

  it('removes images and frees their space, and a push in the middle is refused and loses nothing', async () => {
    await begin();
    const [old, kept, gone] = [
      await push('old'),
      await push('kept'),
      { ...(await push('lost')), digest: `sha256:${'0'.repeat(64)}` },
    ];
    const before = await readFile(registry.config, 'utf8');
    const task = clean([old], [kept, gone]);
    agent('clean.collect.before=delay:2s');
    plane.give(task);
    await waitFor('the collection to begin', () => output.includes('clean.collect.before'), LATE);
    await expect(push('middle')).rejects.toThrow('the registry refused an upload: status 405');
    // A pull works meanwhile.
    expect(await missingIn(registry, 'shop', kept.digest)).toEqual([]);
    const report = await plane.reported(task.id, LATE.deadlineMs);
    expect(report).toMatchObject({
      status: 'completed',
      result: { removed: 1, missing: [{ repository: 'shop', digest: gone.digest }] },
    });
    const { bytes_before, bytes_after } = report.result as {
      bytes_before: number;
      bytes_after: number;
    };
    expect(bytes_before - bytes_after).toBeGreaterThan(64 * KB);
    expect(await missingIn(registry, 'shop', kept.digest)).toEqual([]);
    expect((await missingIn(registry, 'shop', old.digest))[0]).toContain('404');
    // The registry takes images again, also those with a layer that was collected.
    const again = await push('middle');
    expect(await missingIn(registry, 'shop', again.digest)).toEqual([]);
    expect(await readFile(registry.config, 'utf8')).toBe(before);
  });

  it('has nothing to do in a registry that nobody pushed to, now and the next time', async () => {
    await begin();
    agent();
    for (let n = 0; n < 2; n++) {
      const task = nothingToClean();
      plane.give(task);
      expect(await plane.reported(task.id, LATE.deadlineMs)).toMatchObject({
        status: 'completed',
        result: { removed: 0, blobs: 0 },
      });
    }
    expect(await missingIn(registry, 'shop', (await push('first')).digest)).toEqual([]);
  });

  it('says that the collection looks in an empty folder while the registry has images', async () => {
    await begin();
    const [old, kept] = [await push('old'), await push('kept')];
    // As if only the service of the registry had the variable with the folder of its images.
    const bin = join(dir, 'bin');
    await mkdir(bin);
    const elsewhere = `REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY=${join(dir, 'elsewhere')}`;
    await writeFile(
      join(bin, 'docker-registry'),
      `#!/bin/sh\n${elsewhere} exec ${registryProgram()} "$@"\n`,
      { mode: 0o755 },
    );
    agent('', { PATH: `${bin}:${process.env['PATH']}` });
    for (const task of [clean([], [kept]), clean([old], [])]) {
      plane.give(task);
      const report = await plane.reported(task.id, LATE.deadlineMs);
      expect(report).toMatchObject({
        status: 'failed',
        result: { error: { code: 'registry_collect_failed' } },
      });
      expect(JSON.stringify(report)).toContain('Path not found');
    }
    expect(await missingIn(registry, 'shop', (await push('next')).digest)).toEqual([]);
  });

  it('says that the registry does not allow deletions, and changes nothing', async () => {
    await begin({ deletes: false });
    const [old, kept] = [await push('old'), await push('kept')];
    const task = clean([old], [kept]);
    agent();
    plane.give(task);
    const report = await plane.reported(task.id, LATE.deadlineMs);
    expect(report).toMatchObject({
      status: 'failed',
      result: { error: { code: 'registry_delete_disabled' } },
    });
    expect(JSON.stringify(report)).toContain('storage.delete.enabled: true');
    for (const image of [old, kept, await push('next')])
      expect(await missingIn(registry, 'shop', image.digest)).toEqual([]);
  });

  it('an agent that died in the middle continues after its restart', async () => {
    await begin();
    const [old, kept] = [await push('old'), await push('kept')];
    const task = clean([old], [kept]);
    const first = agent('clean.collect.after=kill');
    plane.give(task);
    await once(first, 'exit');
    expect(await isReadOnly()).toBe(true);
    agent();
    expect(await plane.reported(task.id, LATE.deadlineMs)).toMatchObject({ status: 'completed' });
    expect(await isReadOnly()).toBe(false);
    expect(await missingIn(registry, 'shop', kept.digest)).toEqual([]);
    expect(await missingIn(registry, 'shop', (await push('next')).digest)).toEqual([]);
  });

  it('the next clean-up does the rest of one that died', async () => {
    await begin();
    const [first, second, kept] = [await push('first'), await push('second'), await push('kept')];
    const task = clean([first, second], [kept]);
    const dying = agent('clean.deleted=kill');
    plane.give(task);
    await once(dying, 'exit');
    plane.takeAway(task.id);
    const next = clean([first, second], [kept]);
    agent();
    plane.give(next);
    const report = await plane.reported(next.id, LATE.deadlineMs);
    expect(report).toMatchObject({ status: 'completed', result: { removed: 1, missing: [] } });
    const { bytes_before, bytes_after } = report.result as {
      bytes_before: number;
      bytes_after: number;
    };
    // The layers of both: the first clean-up freed nothing.
    expect(bytes_before - bytes_after).toBeGreaterThan(2 * 64 * KB);
    expect(await missingIn(registry, 'shop', kept.digest)).toEqual([]);
  });

  it('says that the registry cannot be restarted, and leaves it as it was', async () => {
    await begin();
    const [old, kept] = [await push('old'), await push('kept')];
    const before = await readFile(registry.config, 'utf8');
    const task = clean([old], [kept]);
    const script = join(dir, 'restart.sh');
    await writeFile(script, 'echo no such container >&2\nexit 1\n');
    agent('', { REGISTRY_RESTART: `sh ${script}` });
    plane.give(task);
    const report = await plane.reported(task.id, LATE.deadlineMs);
    expect(report).toMatchObject({
      status: 'failed',
      result: { error: { code: 'registry_not_read_only' } },
    });
    expect(JSON.stringify(report)).toContain('no such container');
    expect(await readFile(registry.config, 'utf8')).toBe(before);
    expect(await readdir(join(dir, 'state/builder'))).not.toContain('registry-read-only.json');
    for (const image of [kept, await push('next')])
      expect(await missingIn(registry, 'shop', image.digest)).toEqual([]);
  });

  it('makes the registry writable by itself when its restart failed at the end', async () => {
    await begin();
    const [old, kept] = [await push('old'), await push('kept')];
    const broken = join(dir, 'restart-is-broken');
    const script = join(dir, 'restart.sh');
    await writeFile(
      script,
      `test ! -e ${broken} || { echo the restart is broken >&2; exit 1; }\nexec ` +
        `${registry.restart?.join(' ')}\n`,
    );
    const task = clean([old], [kept]);
    agent('clean.collect.after=delay:2s', { REGISTRY_RESTART: `sh ${script}` });
    plane.give(task);
    await waitFor('the collection to end', () => output.includes('clean.collect.after'), LATE);
    await writeFile(broken, '');
    const report = await plane.reported(task.id, LATE.deadlineMs);
    expect(report).toMatchObject({
      status: 'failed',
      result: { error: { code: 'registry_stays_read_only' } },
    });
    expect(JSON.stringify(report)).toContain('the restart is broken');
    await expect(push('refused')).rejects.toThrow('status 405');
    await rm(broken);
    await waitFor(
      'the registry to take images',
      async () => (await push('next').catch(() => null)) !== null,
      LATE,
    );
    expect(await missingIn(registry, 'shop', kept.digest)).toEqual([]);
  });

  it('an agent that reaches the registry at another address uses REGISTRY_URL, and notices another registry there', async () => {
    await begin({ shown: 'only.the.engine.test:5000' });
    const [old, kept] = [await push('old'), await push('kept')];
    const others = [
      { ...old, digest: `sha256:${'1'.repeat(64)}` },
      { ...kept, digest: `sha256:${'2'.repeat(64)}` },
    ] as const;
    agent('', { REGISTRY_URL: registry.url });
    const wrong = clean([others[0]], [others[1]]);
    plane.give(wrong);
    const refused = await plane.reported(wrong.id, LATE.deadlineMs);
    expect(refused).toMatchObject({
      status: 'failed',
      result: { error: { code: 'registry_other' } },
    });
    expect(JSON.stringify(refused)).toContain(
      `${registry.url} has none of the 1 images that releases need`,
    );
    const right = clean([old], [kept]);
    plane.give(right);
    expect(await plane.reported(right.id, LATE.deadlineMs)).toMatchObject({
      status: 'completed',
      result: { removed: 1, missing: [] },
    });
    expect((await missingIn(registry, 'shop', old.digest))[0]).toContain('404');
  });

  it('an agent whose task was taken away makes the registry writable when it starts', async () => {
    await begin();
    const task = clean([await push('old')], []);
    const first = agent('clean.collect.before=kill');
    plane.give(task);
    await once(first, 'exit');
    plane.takeAway(task.id);
    agent();
    await waitFor(
      'the registry to take images',
      async () => !(await isReadOnly()) && (await push('next').catch(() => null)) !== null,
      LATE,
    );
  });
});
