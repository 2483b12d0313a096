/**
 * Task `build`: clone -> find the Dockerfile -> build and push -> report tag, digest and commit.
 * Each step has its own failure codes. The workspace is removed after every outcome.
 */
import { join } from 'node:path';
import { defined } from '@berth/kit/defined';
import { failPoint } from '@berth/kit/fail-point';
import type { ConfigFile, ConfigFileAnswer, LogLineIn, TaskOf, TaskReport } from '@berth/wire/task';
import type { Build, Built } from '../build/buildx.ts';
import { readConfigFile } from '../build/config-file.ts';
import type { Clone, Cloned } from '../git/clone.ts';
import { findContext, findDockerfile } from '../build/dockerfile.ts';
import type { Images } from '../disk/old-images.ts';
import type { KeepRoom } from '../disk/keep-room.ts';
import type { BuildDigests } from '../build/build-digests.ts';
import { TaskFailure } from '../failures.ts';
import type { Workspaces } from '../state/workspace.ts';
import { type Handler, nothingToDiscard, type TaskContext, traced } from './task.ts';

export type BuildDeps = {
  clone: Clone;
  build: Build;
  workspaces: Workspaces;
  images: Images;
  keepRoom: KeepRoom;
  buildTimeoutMs: number;
  digests: BuildDigests;
  checkConfig: CheckConfig;
};

/** Sends berth.toml. Returns null if the control plane does not know the request. */
export type CheckConfig = (
  taskId: string,
  lease: string,
  file: ConfigFile,
  signal: AbortSignal,
) => Promise<ConfigFileAnswer | null>;

/** The labels are the same in each build of a commit, so they do not invalidate the build cache. */
const LABELS = {
  revision: 'org.opencontainers.image.revision',
  source: 'org.opencontainers.image.source',
} as const;

export function createBuildHandler(deps: BuildDeps): Handler<'build'> {
  return (task, context) =>
    deps.workspaces.with(`${task.id}-${context.attempt}`, async (dir) => {
      const { payload } = task;
      const source = join(dir, 'source');
      const cloned = await cloneSource(deps, payload, context, source);
      const buildContext = await findContext(source, payload.build_context ?? '.');
      const configured = await configure(deps, task, context, buildContext);
      const dockerfile = await findDockerfile(source, configured.payload.dockerfile_path);
      const tag = `${payload.image_repository}:${cloned.sha}`;
      const release = deps.images.protect(tag);
      try {
        const work = { dir, tag, sha: cloned.sha, dockerfile, buildContext };
        const built = await buildAndPush(deps, configured.payload, context, work);
        const report = { ...reportOf(tag, cloned, built), ...configured.report };
        return { report, discard: nothingToDiscard };
      } finally {
        release();
        deps.images.cleanLater(payload.image_repository);
      }
    });
}

type Payload = TaskOf<'build'>['payload'];

/**
 * Reads berth.toml, if the control plane asks for it, and lets the control plane check it before the
 * build. Returns the payload with the build settings of the file.
 */
async function configure(
  { checkConfig }: BuildDeps,
  { id, payload }: TaskOf<'build'>,
  { lease, signal, logStep }: TaskContext,
  buildContext: string,
): Promise<{ payload: Payload; report: Pick<TaskReport, 'config_file'> }> {
  const { config_file: name } = payload;
  if (name === undefined || lease === undefined) return { payload, report: {} };
  const config_file = await readConfigFile(buildContext, payload.build_context ?? '.', name);
  if (config_file === null) return { payload, report: {} };
  const answer = await checkConfig(id, lease, config_file, signal);
  if (answer === null) {
    logStep('config', `the control plane is of an earlier version: it ignores ${config_file.file}`);
    return { payload, report: {} };
  }
  if (answer.problem !== null) throw new TaskFailure('config_invalid', answer.problem);
  logStep('config', `read ${config_file.file}`);
  const { dockerfile_path, build_target, build_args } = answer;
  const { build_target: _, ...rest } = payload;
  return {
    payload: {
      ...rest,
      dockerfile_path,
      build_args,
      ...defined({ build_target: build_target ?? undefined }),
    },
    report: { config_file },
  };
}

async function cloneSource(
  { clone }: BuildDeps,
  payload: Payload,
  context: TaskContext,
  source: string,
): Promise<Cloned> {
  const { signal, log, logStep } = context;
  logStep(
    'clone',
    payload.commit === null
      ? `cloning ${payload.git_url}, branch ${payload.branch}`
      : `fetching ${payload.commit} of ${payload.git_url}`,
  );
  await failPoint('clone.before');
  const spec = {
    url: payload.git_url,
    branch: payload.branch,
    commit: payload.commit,
    allowedHosts: payload.allowed_git_hosts,
    submodules: payload.submodules ?? true,
    lfs: payload.git_lfs ?? false,
    access: context.git ?? null,
  };
  const cloned = await traced(context, 'clone', () =>
    clone(spec, source, {
      signal,
      onLine: (text) => log({ stream: 'stderr', step: 'clone', text }),
      logLine: (text) => logStep('clone', text),
      onCommit: ({ sha, message, author }) =>
        context.learned({ commit: sha, commit_message: message, commit_author: author }),
    }),
  );
  // The log has this sentence too, but people read the deployment's notes first.
  if (cloned.lfs !== null) context.note('git_lfs', cloned.lfs);
  if (cloned.hostKeys.length > 0) context.learned({ host_keys: cloned.hostKeys });
  logStep('clone', `commit ${cloned.sha}`);
  await failPoint('clone.after');
  return cloned;
}

type BuildWork = {
  dir: string;
  tag: string;
  sha: string;
  dockerfile: string;
  buildContext: string;
};

async function buildAndPush(
  deps: BuildDeps,
  payload: Payload,
  context: TaskContext,
  work: BuildWork,
): Promise<Built> {
  const { signal, logStep, secretsDigest } = context;
  const { keepRoom, digests } = deps;
  const noCache = digests.changed(payload.project_id, secretsDigest);
  if (noCache)
    logStep('build', 'the build secrets changed since the last build here: building without cache');
  await keepRoom(signal, { logLine: (text) => logStep('build', text) });
  if (noCache) await digests.begins(payload.project_id);
  await failPoint('build.before');
  const { digest, arch } = await runBuild(deps, payload, context, work, noCache);
  await digests.built(payload.project_id, secretsDigest);
  await failPoint('push.after');
  logStep('push', `pushed ${work.tag}${digest === null ? '' : ` as ${digest}`}`);
  return { digest, arch };
}

/** Runs the command that builds and pushes, with one span for the build and one for the push. */
async function runBuild(
  { build, buildTimeoutMs }: BuildDeps,
  payload: Payload,
  context: TaskContext,
  { dir, tag, sha, dockerfile, buildContext }: BuildWork,
  noCache: boolean,
): Promise<Built> {
  const endBuild = context.span?.('build');
  let endPush: ((failed?: boolean) => void) | undefined;
  const onLine = (line: LogLineIn): void => {
    if (line.step === 'push') endPush ??= context.span?.('push');
    context.log(line);
  };
  const spec = {
    project: payload.project_id,
    context: buildContext,
    dockerfile,
    target: payload.build_target ?? null,
    args: payload.build_args ?? {},
    tag,
    labels: { [LABELS.revision]: sha, [LABELS.source]: payload.git_url },
    metadataFile: join(dir, 'metadata.json'),
    policyFile: join(dir, 'source-policy.json'),
    spoolFile: join(dir, 'build-messages'),
    secrets: context.secrets,
    noCache,
  };
  const { signal, room } = context;
  const options = { signal, timeoutMs: buildTimeoutMs, onLine, room };
  const built = await build(spec, options).catch((error: unknown) => {
    endPush?.(true);
    endBuild?.(true);
    throw error;
  });
  context.learned({
    image_tag: tag,
    image_digest: built.digest,
    ...defined({ arch: built.arch ?? undefined }),
  });
  endPush?.();
  endBuild?.();
  return built;
}

const reportOf = (
  tag: string,
  { sha, message, author, hostKeys }: Cloned,
  { digest, arch }: Built,
): TaskReport => ({
  status: 'completed',
  result: null,
  image_tag: tag,
  image_digest: digest,
  commit: sha,
  commit_message: message,
  commit_author: author,
  arch,
  ...defined({ host_keys: hostKeys.length === 0 ? undefined : hostKeys }),
});
