/** How build arguments reach buildx. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { buildArgs, createBuild } from '../../src/build/buildx.ts';
import type { DockerCli, RunOptions } from '../../src/engine/docker-cli.ts';

it('a value is in the environment and not among the arguments', () => {
  expect(buildArgs({ VERSION: '1', api_key: 'secret', EMPTY: '' })).toEqual({
    argv: ['--build-arg', 'VERSION', '--build-arg', 'api_key', '--build-arg', 'EMPTY'],
    env: { VERSION: '1', api_key: 'secret', EMPTY: '' },
  });
});

it.each([
  ...[
    'PATH',
    'HOME',
    'LD_PRELOAD',
    'LD_LIBRARY_PATH',
    'DOCKER_HOST',
    'DOCKER_CONFIG',
    'BUILDX_BUILDER',
    'GODEBUG',
    'SSL_CERT_FILE',
    'TMPDIR',
  ],
  ...[
    'HTTP_PROXY',
    'https_proxy',
    'no_proxy',
    'ALL_PROXY',
    'OTEL_EXPORTER_OTLP_ENDPOINT',
    'XDG_CONFIG_HOME',
    'GIT_DIR',
    'SSH_AUTH_SOCK',
  ],
  ...[
    'HOSTALIASES',
    'GLIBC_TUNABLES',
    'RES_OPTIONS',
    'LC_ALL',
    'TZ',
    'AWS_PROFILE',
    'SOURCE_DATE_EPOCH',
    'BERTH_SECRET_NPM',
  ],
])('a name that docker or its libraries read is never in their environment: %s', (name) => {
  expect(buildArgs({ [name]: 'x' })).toEqual({ argv: ['--build-arg', `${name}=x`], env: {} });
});

it.each(['BUILDKIT_SYNTAX', 'BUILDKIT_CACHE_MOUNT_NS', 'buildkit_x'])('%s is refused', (name) => {
  expect(() => buildArgs({ [name]: 'x' })).toThrow(name);
});

it('no build argument can take the value of a build secret: its variable has another random name in each build', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'berth-build-args-'));
  const [Dockerfile, metadataFile] = [join(dir, 'Dockerfile'), join(dir, 'metadata.json')];
  await writeFile(Dockerfile, 'FROM node\n');
  await writeFile(metadataFile, '{}');
  const runs: { args: readonly string[]; env: NodeJS.ProcessEnv }[] = [];
  const result = { code: 0, ended: null, stdout: '', stderr: '' };
  const run = async (args: readonly string[], options?: RunOptions) => {
    if (args[1] === 'build') runs.push({ args, env: options?.env ?? {} });
    return result as Awaited<ReturnType<DockerCli['run']>>;
  };
  const cli: DockerCli = { run, runOrThrow: run };
  const imageRules = async (own: string) => ({ own, registries: [], shared: [] });
  const build = createBuild(cli, async () => null, {
    frontends: [],
    imageArch: async () => null,
    imageRules,
  });
  const spec = {
    ...{
      project: 'p',
      context: dir,
      dockerfile: Dockerfile,
      target: null,
      tag: 'reg:1/p:1',
      labels: {},
      noCache: false,
    },
    ...{ metadataFile, policyFile: join(dir, 'policy.json'), spoolFile: join(dir, 'messages') },
    ...{ args: { BERTH_SECRET_NPM: 'x' }, secrets: [{ name: 'NPM', value: 'canary' }] },
  };
  const options = {
    signal: new AbortController().signal,
    timeoutMs: 1_000,
    onLine: () => undefined,
  };
  await build(spec, options);
  await build(spec, options);
  const names = runs.map(({ args, env }) => {
    const [name = ''] = Object.entries(env).find(([, value]) => value === 'canary') ?? [];
    expect(args).toContain(`id=NPM,env=${name}`);
    expect(args).toContain('BERTH_SECRET_NPM=x');
    return name;
  });
  expect(new Set(names).size).toBe(2);
  for (const name of names) expect(name).toMatch(/^BERTH_SECRET_[0-9a-f]{32}$/);
  await rm(dir, { recursive: true });
});
