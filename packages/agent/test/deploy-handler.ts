import type { Images } from '../src/images.ts';
import { createLocks } from '../src/locks.ts';
import { createDeployHandler, type DeployDeps } from '../src/tasks/deploy.ts';

const images = { protect: () => () => undefined, removed: async () => undefined, cleanLater: () => undefined } as unknown as Images;

/** The deploy handler of a separate agent, which shares no memory with others, on the given engine. */
export const deployHandlerOn = ({ docker, prepare }: Pick<DeployDeps, 'docker' | 'prepare'>): ReturnType<typeof createDeployHandler> =>
  createDeployHandler({
    docker,
    listContainers: (labels) => docker.list({ ...labels, 'berth.node': 'node-1' }),
    images,
    keepRoom: async () => undefined,
    expectPull: async () => ({ bytes: 0, pulled: async () => undefined, release: () => undefined }),
    locks: createLocks(),
    secretFiles: {
      problem: null,
      values: async () => [],
      fill: () => Promise.reject(new Error('no file secrets')),
      protect: () => () => undefined,
      restore: () => Promise.resolve(),
      cleanLater: () => undefined,
      stop: () => Promise.resolve(),
    },
    networks: {
      of: async () => null,
      forget: () => undefined,
      protect: () => () => undefined,
      cleanLater: () => undefined,
      stop: async () => undefined,
    },
    prepare,
    volumes: null,
    hostIp: async () => '127.0.0.1',
    publishIp: undefined,
    arch: () => 'amd64',
    pullTimeoutMs: 1_000,
    pidsLimit: 1,
    defaultMemory: undefined,
    logMaxSize: '1m',
    logMaxFiles: 1,
  });
