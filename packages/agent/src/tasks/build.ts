/**
 * build: clone -> find the Dockerfile -> build and push -> report tag, digest and commit.
 * Each step has its own failure codes. The workspace is removed after every outcome.
 */
import { join } from 'node:path';
import { defined } from '@berth/kit/defined';
import { failPoint } from '@berth/kit/fail-point';
import type { LogLineIn } from '@berth/wire/task';
import type { Build } from '../build/buildx.ts';
import type { Clone } from '../git/clone.ts';
import { findContext, findDockerfile } from '../build/dockerfile.ts';
import type { Images } from '../disk/old-images.ts';
import type { KeepRoom } from '../disk/keep-room.ts';
import type { BuildDigests } from '../build/build-digests.ts';
import type { Workspaces } from '../state/workspace.ts';
import { type Handler, nothingToDiscard, traced } from './task.ts';

export type BuildDeps = {
  clone: Clone;
  build: Build;
  workspaces: Workspaces;
  images: Images;
  keepRoom: KeepRoom;
  buildTimeoutMs: number;
  digests: BuildDigests;
};

/** The labels are equal in each build of a commit, so they invalidate no build cache. */
const LABELS = {
  revision: 'org.opencontainers.image.revision',
  source: 'org.opencontainers.image.source',
} as const;

export function createBuildHandler(deps: BuildDeps): Handler<'build'> {
  return (task, context) =>
    deps.workspaces.with(`${task.id}-${context.attempt}`, async (dir) => {
      const { payload } = task;
      const { signal, log, logStep } = context;
      const source = join(dir, 'source');

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
      const { sha, message, author, hostKeys, lfs } = await traced(context, 'clone', () =>
        deps.clone(spec, source, {
          signal,
          onLine: (text) => log({ stream: 'stderr', step: 'clone', text }),
          logLine: (text) => logStep('clone', text),
          onCommit: (found) =>
            context.learned({
              commit: found.sha,
              commit_message: found.message,
              commit_author: found.author,
            }),
        }),
      );
      // The log has the sentence too. People read the story first.
      if (lfs !== null) context.note('git_lfs', lfs);
      if (hostKeys.length > 0) context.learned({ host_keys: hostKeys });
      logStep('clone', `commit ${sha}`);
      await failPoint('clone.after');

      const dockerfile = await findDockerfile(source, payload.dockerfile_path);
      const buildContext = await findContext(source, payload.build_context ?? '.');
      const tag = `${payload.image_repository}:${sha}`;
      const release = deps.images.protect(tag);
      const noCache = deps.digests.changed(payload.project_id, context.secretsDigest);
      if (noCache)
        logStep(
          'build',
          'the build secrets changed since the last build here: building without cache',
        );
      try {
        await deps.keepRoom(signal, { logLine: (text) => logStep('build', text) });
        if (noCache) await deps.digests.begins(payload.project_id);
        await failPoint('build.before');
        const endBuild = context.span?.('build');
        let endPush: ((failed?: boolean) => void) | undefined;
        const onLine = (line: LogLineIn): void => {
          // One command builds and pushes.
          if (line.step === 'push') endPush ??= context.span?.('push');
          log(line);
        };
        const built = deps.build(
          {
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
          },
          { signal, timeoutMs: deps.buildTimeoutMs, onLine, room: context.room },
        );
        const { digest, arch } = await built.catch((error: unknown) => {
          endPush?.(true);
          endBuild?.(true);
          throw error;
        });
        context.learned({
          image_tag: tag,
          image_digest: digest,
          ...defined({ arch: arch ?? undefined }),
        });
        endPush?.();
        endBuild?.();
        await deps.digests.built(payload.project_id, context.secretsDigest);
        await failPoint('push.after');
        logStep('push', `pushed ${tag}${digest === null ? '' : ` as ${digest}`}`);
        return {
          report: {
            status: 'completed',
            result: null,
            image_tag: tag,
            image_digest: digest,
            commit: sha,
            commit_message: message,
            commit_author: author,
            arch,
            ...defined({ host_keys: hostKeys.length === 0 ? undefined : hostKeys }),
          },
          discard: nothingToDiscard,
        };
      } finally {
        release();
        deps.images.cleanLater(payload.image_repository);
      }
    });
}
