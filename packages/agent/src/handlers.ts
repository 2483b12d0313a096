/** Creates the handlers for all kinds of tasks from the parts of this agent. */
import { join } from 'node:path';
import { defined } from '@berth/kit/defined';
import type { AgentOptions } from './config.ts';
import type { AgentParts } from './parts.ts';
import { createChunkClient } from './data/volumes/chunks.ts';
import { createRegistryApi } from './registry/api.ts';
import { createCollector } from './registry/collect.ts';
import type { Client } from '@berth/wire/client';
import { createRegistryConfigFile } from './registry/config-file.ts';
import { createConfigCheck } from './link/config-check.ts';
import type { RegistrySettings } from './link/registry-settings.ts';
import type { StateFolder } from './state/state-folder.ts';
import { createBuildHandler } from './tasks/build.ts';
import { createCleanHandler } from './tasks/clean.ts';
import { createDeployHandler } from './tasks/deploy.ts';
import { createLookHandler } from './tasks/look.ts';
import { createMoveHandler } from './tasks/move.ts';
import { createRetireHandler } from './tasks/retire.ts';
import { createRunHandler } from './tasks/run.ts';
import { createSyncHandler } from './tasks/sync.ts';
import type { RegistryParts } from './tasks/clean.ts';
import type { Handlers } from './tasks/task.ts';
import type { Docker } from './engine/docker.ts';
import type { EngineClient } from './engine/engine-client.ts';
import { createBuild } from './build/buildx.ts';
import { createGit } from './git/git.ts';
import { createImageRules } from './build/image-rules.ts';
import { createIsInsecure } from './engine/insecure-registries.ts';
import { createPushAccess } from './build/push-access.ts';

/** Returns git’s private folder. */
export const gitHome = (state: StateFolder): string => join(state.root, 'git');

/** Creates the parts that clean the registry; null without REGISTRY_CONFIG. */
export function createRegistryParts(
  {
    REGISTRY_CONFIG: path,
    REGISTRY_CONTAINER: container,
    REGISTRY_RESTART: restart,
    REGISTRY_URL: url,
    inherit,
  }: AgentOptions,
  { engineClient, docker }: { engineClient: EngineClient; docker: Docker },
  registry: Pick<RegistrySettings, 'current'>,
  state: StateFolder,
): RegistryParts | null {
  if (path === undefined) return null;
  const api = createRegistryApi({
    settings: registry.current,
    isInsecure: createIsInsecure(engineClient),
    url,
  });
  const file = createRegistryConfigFile(path, join(state.root, 'registry-read-only.json'));
  return {
    api,
    file,
    url,
    collector: createCollector({ file, api, container, restart, docker, env: inherit }),
  };
}

type HandlerParts = {
  client: Client;
  registry: RegistrySettings;
  cleaning: RegistryParts | null;
  state: StateFolder;
};
export function createHandlers(
  config: AgentOptions,
  parts: AgentParts,
  { client, registry, cleaning, state }: HandlerParts,
): Handlers {
  const {
    cli,
    engineClient,
    docker,
    listContainers,
    images,
    locks,
    networks,
    secretFiles,
    data,
    volumes,
    keepRoom,
  } = parts;
  const git = createGit({
    homeDir: gitHome(state),
    inherit: config.inherit,
    cloneTimeoutMs: config.CLONE_TIMEOUT,
    stallTimeoutMs: config.GIT_STALL_TIMEOUT,
    sshKeyHosts: config.SSH_KEY_HOSTS ?? [],
    keys: state.keys,
  });
  const containerParts = { docker, listContainers, images, locks, networks, secretFiles };
  return {
    build: createBuildHandler({
      clone: git.clone,
      build: createBuild(cli, createPushAccess(registry.current, createIsInsecure(engineClient)), {
        imageArch: async (tag, signal) => (await docker.imageConfig(tag, signal))?.arch ?? null,
        frontends: config.BUILD_FRONTENDS ?? [],
        imageRules: createImageRules({
          registry: registry.current,
          url: config.REGISTRY_URL,
          shared: config.BUILD_BASE_IMAGES ?? [],
        }),
      }),
      workspaces: state.workspaces,
      images,
      keepRoom,
      buildTimeoutMs: config.BUILD_TIMEOUT,
      digests: parts.buildDigests,
      checkConfig: createConfigCheck(client),
    }),
    deploy: createDeployHandler({
      ...containerParts,
      ...defined({ holdProbe: parts.runningProbe?.hold }),
      keepRoom,
      expectPull: parts.expectPull,
      prepare: data?.prepare ?? null,
      volumes,
      hostIp: parts.hostIp,
      publishIp: parts.publishIp,
      hostPorts: parts.hostPorts,
      arch: parts.engineStatus.arch,
      pullTimeoutMs: config.PULL_TIMEOUT,
      pidsLimit: config.PIDS_LIMIT,
      defaultMemory: config.DEFAULT_MEMORY,
      logMaxSize: config.LOG_MAX_SIZE,
      logMaxFiles: config.LOG_MAX_FILES,
    }),
    retire: createRetireHandler({
      ...containerParts,
      data,
      repositoryOf: registry.repositoryOf,
    }),
    sync: createSyncHandler({ cache: data?.cache ?? null, pins: data?.pins ?? null }),
    look: createLookHandler({
      look: git.look,
      lookAtRepository: git.lookAtRepository,
      workspaces: state.workspaces,
    }),
    run: createRunHandler({
      ...parts.runs,
      docker,
      images,
      locks,
      networks,
      secretFiles,
      keepRoom,
      expectPull: parts.expectPull,
      pullTimeoutMs: config.PULL_TIMEOUT,
      arch: parts.engineStatus.arch,
      prepare: data?.prepare ?? null,
      volumes,
      pidsLimit: config.PIDS_LIMIT,
      defaultMemory: config.DEFAULT_MEMORY,
      logMaxSize: config.LOG_MAX_SIZE,
      logMaxFiles: config.LOG_MAX_FILES,
    }),
    clean: createCleanHandler({ registry: cleaning, locks }),
    move: createMoveHandler({
      volumes,
      chunks: createChunkClient(config.CONTROL_PLANE_URL, parts.credentials.headers),
      listContainers,
      locks,
      inherit: config.inherit,
    }),
  };
}
