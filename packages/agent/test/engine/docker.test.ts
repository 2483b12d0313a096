/** Options of the docker command, and pulls while the registry restarts. */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ExecResult } from '@berth/kit/exec';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createDocker, mountOption } from '../../src/engine/docker.ts';
import type { DockerCli, RunOptions } from '../../src/engine/docker-cli.ts';

it.each([
  [
    { source: '/svc/mounts/d/a', target: '/data/a', readonly: true },
    'type=bind,src=/svc/mounts/d/a,dst=/data/a,readonly',
  ],
  [
    { source: '/mnt/a, b', target: '/data/"x"', readonly: false },
    'type=bind,"src=/mnt/a, b","dst=/data/""x"""',
  ],
])('mountOption(%j)', (mount, text) => expect(mountOption(mount)).toBe(text));

it.each([
  'HOSTALIASES',
  'GLIBC_TUNABLES',
  'GCONV_PATH',
  'RES_OPTIONS',
  'LD_PRELOAD',
  'DOCKER_HOST',
  'PATH',
])(
  'an env secret named %s reaches the container and never the environment of the docker command',
  async (name) => {
    const scratchDir = await mkdtemp(join(tmpdir(), 'berth-docker-'));
    const given: { args: readonly string[]; env: NodeJS.ProcessEnv | undefined; file: string }[] =
      [];
    const run = async (args: readonly string[], options?: RunOptions): Promise<ExecResult> => {
      const file = await readFile(args[args.indexOf('--env-file') + 1] ?? '', 'utf8');
      given.push({ args, env: options?.env, file });
      return {
        argv: [],
        code: 0,
        signal: null,
        stdout: 'a'.repeat(64),
        stdoutCut: false,
        stderr: '',
        ended: null,
      };
    };
    const docker = createDocker({ run } as unknown as DockerCli, { scratchDir });
    const env = { [name]: 'of the project', PLAIN: 'x' };
    const spec = {
      name: 'svc-a',
      image: '--privileged',
      env,
      secretEnv: env,
      labels: {},
      mounts: [],
      network: null,
      publishIp: undefined,
    };
    const limits = {
      hostPort: 20_000,
      containerPort: 80,
      pidsLimit: 1,
      memoryBytes: null,
      cpus: null,
      logMaxSize: '1m',
      logMaxFiles: 1,
    };
    await docker.run({ ...spec, ...limits }, new AbortController().signal);
    expect(given[0]?.env).not.toHaveProperty(name);
    expect(given[0]?.file).toContain(`${name}=of the project\n`);
    // The name of an image is never an option.
    expect(given[0]?.args.slice(-2)).toEqual(['--', '--privileged']);
    await rm(scratchDir, { recursive: true });
  },
);

it('a user by name in an image without /etc/passwd is the fault of the image, not of the agent', async () => {
  const stderr = 'Error response from daemon: Could not find the file /etc/passwd in container c1';
  const run = async ([command]: readonly string[]): Promise<ExecResult> => {
    const failed = command === 'cp';
    return {
      argv: [],
      code: failed ? 1 : 0,
      signal: null,
      stdout: '',
      stdoutCut: false,
      stderr: failed ? stderr : '',
      ended: null,
    };
  };
  const runOrThrow = async (): Promise<ExecResult> => ({
    ...(await run(['create'])),
    stdout: 'c1\n',
  });
  const docker = createDocker({ run, runOrThrow } as unknown as DockerCli, {
    scratchDir: '/nowhere',
  });
  await expect(
    docker.userOf('r/app', 'app', {}, new AbortController().signal),
  ).rejects.toMatchObject({
    code: 'container_start_failed',
    detail: expect.stringContaining('the image sets USER app, but has no such user'),
  });
});

describe('a pull', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());
  const REFUSED =
    'Error response from daemon: Get "http://10.0.0.1:5000/v2/": dial tcp 10.0.0.1:5000: ' +
    'connect: connection refused';
  const NO_ROUTE =
    'Error response from daemon: error parsing HTTP 404 response body: invalid character: "404 ' +
    'page not found\\n"';
  const UNKNOWN =
    'Error response from daemon: manifest for r:5000/shop@sha256:1 not found: manifest unknown';

  /**
   * Pulls with an engine that answers with these errors, then with success. Returns how often it
   * was asked, and how it ended.
   */
  async function pull(
    errors: string[],
    signal = new AbortController().signal,
  ): Promise<{ asked: number; ended: string; said: string[] }> {
    let asked = 0;
    const said: string[] = [];
    const run = async (): Promise<ExecResult> => {
      const stderr = errors[asked++] ?? '';
      return {
        argv: [],
        code: stderr === '' ? 0 : 1,
        signal: null,
        stdout: '',
        stdoutCut: false,
        stderr,
        ended: null,
      };
    };
    const docker = createDocker({ run } as unknown as DockerCli, { scratchDir: '/nowhere' });
    const ended = docker
      .pull('r:5000/shop@sha256:1', {
        signal,
        timeoutMs: 60_000,
        onLine: (line) => said.push(line),
      })
      .then(
        () => 'pulled',
        (error: { code?: string; message: string }) => error.code ?? error.message,
      );
    await vi.advanceTimersByTimeAsync(20_000);
    return { asked, ended: await ended, said };
  }

  it('waits while the registry restarts, directly and behind Traefik', async () => {
    expect(await pull([REFUSED, NO_ROUTE])).toEqual({
      asked: 3,
      ended: 'pulled',
      said: [
        'the registry does not answer; next attempt in 1 s',
        'the registry does not answer; next attempt in 2 s',
      ],
    });
  });
  it('ends when the registry stays away', async () => {
    expect(await pull(Array.from({ length: 9 }, () => REFUSED))).toMatchObject({
      asked: 4,
      ended: 'registry_unreachable',
    });
  });
  it('is not repeated for an image that is not there', async () => {
    expect(await pull([UNKNOWN])).toEqual({ asked: 1, ended: 'image_pull_failed', said: [] });
  });
  it('ends at once when the task is taken away', async () => {
    const stop = new AbortController();
    setTimeout(() => stop.abort(new Error('taken away')), 500);
    expect(await pull([REFUSED, REFUSED], stop.signal)).toMatchObject({
      asked: 1,
      ended: 'taken away',
    });
  });
});
