/**
 * Combines the engine operations into one `Docker` object. Each kind of operation has its own file.
 */
import { execute, readInside, runInside } from './container-exec.ts';
import { lastLines, readLog } from './container-logs.ts';
import {
  environmentOf,
  inspectContainer,
  listContainers,
  publishedPort,
  removeContainer,
  renameContainer,
  restartPolicyOf,
  stopContainer,
} from './containers.ts';
import type { Docker } from './docker.ts';
import type { EngineClient } from './engine-client.ts';
import { lastEndOf, watchContainers } from './engine-events.ts';
import { engineStartOf, engineVersion } from './engine-facts.ts';
import {
  imageConfigOf,
  imageSizeOf,
  imagesWithContainer,
  listImages,
  removeImage,
} from './image-store.ts';
import { userIdOf } from './image-user.ts';
import { pullImage } from './pull-image.ts';
import type { RegistryCredentials } from './registry-credentials.ts';
import { createCommand, runContainer } from './run-container.ts';

export type DockerDeps = {
  engine: EngineClient;
  credentials: Pick<RegistryCredentials, 'headerFor' | 'secrets'>;
};

export function createDocker({ engine, credentials }: DockerDeps): Docker {
  return {
    list: (labels, signal) => listContainers(engine, labels, signal),
    inspect: (ref, signal) => inspectContainer(engine, ref, signal),
    imageConfig: (ref, signal) => imageConfigOf(engine, ref, signal),
    imageSize: (ref, signal) => imageSizeOf(engine, ref, signal),
    userOf: (image, user, labels, signal) => userIdOf(engine, image, user, labels, signal),
    pull: (ref, options) => pullImage(engine, credentials, ref, options),
    run: (spec, signal) => runContainer(engine, spec, signal),
    createCommand: (spec, signal) => createCommand(engine, spec, signal),
    attachInput: (id, signal) =>
      engine.hijack('POST /containers/{id}/attach', {
        params: { id },
        query: { stream: true, stdin: true },
        signal,
      }),
    hostPort: (id, containerPort, signal) => publishedPort(engine, id, containerPort, signal),
    async waitExit(id, signal) {
      await engine.call('POST /containers/{id}/wait', { params: { id }, signal, timeoutMs: null });
    },
    async restartUnlessStopped(id, signal) {
      const body = { RestartPolicy: { Name: 'unless-stopped' } } as const;
      await engine.call('POST /containers/{id}/update', { params: { id }, body, signal });
    },
    restartPolicy: (id, signal) => restartPolicyOf(engine, id, signal),
    engineStart: (signal) => engineStartOf(engine, signal),
    async start(id) {
      await engine.call('POST /containers/{id}/start', { params: { id } });
    },
    async restart(ref, options) {
      await engine.call('POST /containers/{id}/restart', { params: { id: ref }, ...options });
    },
    stop: (id, graceSeconds, signal) => stopContainer(engine, id, graceSeconds, signal),
    remove: (ref) => removeContainer(engine, ref),
    rename: (id, name) => renameContainer(engine, id, name),
    lastLines: (id, count) => lastLines(engine, id, count),
    logs: (id, options) => readLog(engine, id, options),
    lastEnd: (id, since) => lastEndOf(engine, id, since),
    envOf: (id) => environmentOf(engine, id),
    readInside: (id, paths) => readInside(engine, id, paths),
    runInside: (id, command, options) => runInside(engine, id, command, options),
    execute: (ref, command, options) => execute(engine, ref, command, options),
    images: (repository) => listImages(engine, repository),
    imagesInUse: () => imagesWithContainer(engine),
    removeImageRef: (ref) => removeImage(engine, ref),
    events: (labels, onEvent, signal) => watchContainers(engine, labels, onEvent, signal),
    version: (signal) => engineVersion(engine, signal),
  };
}
