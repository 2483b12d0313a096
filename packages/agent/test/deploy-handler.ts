import type { HostPorts } from '../src/engine/host-ports.ts';
import type { Images } from '../src/disk/old-images.ts';
import { createLocks } from '../src/locks.ts';
import { createDeployHandler, type DeployDeps } from '../src/tasks/deploy.ts';

const images = {
  protect: () => () => undefined,
  removed: async () => undefined,
  cleanLater: () => undefined,
} as unknown as Images;

let lastPort = 20_000;
/** Hands out every port once. */
const hostPorts: HostPorts = {
  range: { first: 20_000, last: 29_999 },
  take: async () => ({ port: (lastPort += 1), release: () => undefined }),
};

/**
 * The deploy handler of a separate agent, which shares no memory with others, on the given engine.
 */
export const deployHandlerOn = ({
  docker,
  prepare,
  holdProbe = () => () => undefined,
}: Pick<DeployDeps, 'docker' | 'prepare' | 'holdProbe'>): ReturnType<typeof createDeployHandler> =>
  createDeployHandler({
    docker,
    listContainers: (labels) => docker.list({ ...labels, 'berth.node': 'node-1' }),
    images,
    keepRoom: async () => undefined,
    expectPull: async () => ({ bytes: 0, pulled: async () => undefined, release: () => undefined }),
    locks: createLocks(),
    secretFiles: {
      fill: () => Promise.reject(new Error('no file secrets')),
      protect: () => () => undefined,
      cleanLater: () => undefined,
    },
    networks: {
      of: async () => null,
      forget: () => undefined,
      protect: () => () => undefined,
      cleanLater: () => undefined,
    },
    prepare,
    holdProbe,
    volumes: null,
    hostIp: async () => '127.0.0.1',
    publishIp: undefined,
    hostPorts,
    arch: () => 'amd64',
    pullTimeoutMs: 1_000,
    pidsLimit: 1,
    defaultMemory: undefined,
    logMaxSize: '1m',
    logMaxFiles: 1,
  });
