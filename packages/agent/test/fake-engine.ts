/**
 * A container engine in memory: containers with names, labels and states. All their ports lead to
 * one web server.
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { reasonOf } from '../src/stopped.ts';
import type { Container, Docker } from '../src/engine/docker.ts';
import { TaskFailure } from '../src/failures.ts';
import type { ImageConfig } from '../src/engine/image-config.ts';

export type FakeEngine = {
  docker: Docker;
  port: number;
  containers: Map<string, Container>;
  /** Adds an existing container. */
  put(given: Partial<Container> & { id: string }): Container;
  /** All containers as `name state`, sorted. */
  all(): string[];
  stop(): Promise<void>;
};

/** A running container. */
export const container = (given: Partial<Container>): Container => ({
  id: 'c',
  name: 'svc-a',
  image: 'r/app@sha256:1',
  imageId: 'sha256:i',
  labels: {},
  state: 'running',
  exitCode: 0,
  oomKilled: false,
  startedAt: null,
  finishedAt: null,
  memoryBytes: null,
  cpus: null,
  restarts: 0,
  error: '',
  hostPort: 1234,
  fixedPort: 1234,
  health: null,
  stopSignal: 'SIGTERM',
  ...given,
});

export const PLAIN_IMAGE: ImageConfig = {
  arch: 'amd64',
  user: '',
  entrypoint: [],
  cmd: ['serve'],
  exposed: [],
  volumes: [],
  healthCheck: null,
  port: null,
};

export async function startFakeEngine(): Promise<FakeEngine> {
  const server = createServer((_, response) => void response.end('ok'));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const containers = new Map<string, Container>();
  let count = 0;
  const find = (ref: string): Container | undefined =>
    containers.get(ref) ?? [...containers.values()].find((c) => c.name === ref);
  const change = (ref: string, over: Partial<Container>): void => {
    const found = find(ref);
    if (found !== undefined) containers.set(found.id, { ...found, ...over });
  };
  function put(given: Partial<Container> & { id: string }): Container {
    const made = container({ name: given.id, hostPort: port, ...given });
    containers.set(made.id, made);
    return made;
  }
  const docker: Partial<Docker> = {
    list: async (labels) =>
      [...containers.values()].filter((c) =>
        Object.entries(labels).every(([k, v]) =>
          v === null ? c.labels[k] !== undefined : c.labels[k] === v,
        ),
      ),
    inspect: async (ref) => find(ref) ?? null,
    imageConfig: async () => ({ ...PLAIN_IMAGE }),
    run: async ({ name, image, labels }) => {
      if (find(name) !== undefined)
        throw new TaskFailure('container_start_failed', `the name "/${name}" is already in use`);
      return put({ id: `c${(count += 1)}`, name, image, labels }).id;
    },
    createCommand: async ({ name, image, labels }) =>
      put({ id: `c${(count += 1)}`, name, image, labels, state: 'created', hostPort: null }).id,
    hostPort: async (id) => find(id)?.hostPort ?? null,
    waitExit: (_, signal) =>
      new Promise((_done, reject) =>
        signal.addEventListener('abort', () => reject(reasonOf(signal)), { once: true }),
      ),
    restartUnlessStopped: async () => undefined,
    restartPolicy: async () => 'unless-stopped',
    engineStart: async () => ({ id: 'engine', since: 0 }),
    start: async (id) => change(id, { state: 'running', startedAt: new Date().toISOString() }),
    stop: async (id) => change(id, { state: 'exited' }),
    remove: async (ref) => void containers.delete(find(ref)?.id ?? ''),
    rename: async (id, name) => {
      const found = find(id) !== undefined;
      change(id, { name });
      return found;
    },
    version: async () => ({ version: '28.2.2', arch: 'amd64' }),
    lastLines: async () => [],
    readInside: async () => null,
  };
  return {
    docker: docker as Docker,
    port,
    containers,
    put,
    all: () => [...containers.values()].map((c) => `${c.name} ${c.state}`).sort(),
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
