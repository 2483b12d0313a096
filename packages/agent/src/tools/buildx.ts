/** `docker buildx build --push` (contract "Agent behaviour on tasks"). */
import { open, readFile } from 'node:fs/promises';
import { failPoint } from '@berth/kit/fail-point';
import type { FailureCode } from '@berth/wire/errors';
import { repositoryOf } from '../images.ts';
import type { DockerCli } from './docker-cli.ts';
import { type BuildLine, type FailedStep, MAX_MESSAGE, plainReader, rawJsonReader } from './build-progress.ts';
import { classify, lastWords, PUSH_FAILURES, TaskFailure } from './failures.ts';
import { checkFrontend } from './frontend.ts';
import { type PushAccess, untilRefused } from './push-access.ts';

export type BuildSpec = {
  /** Its id: cache mounts are kept apart by it. */
  project: string;
  /** The clone; also the build's context. */
  context: string;
  dockerfile: string;
  tag: string;
  labels: Record<string, string>;
  /** Where buildx writes what it made; outside the context. */
  metadataFile: string;
};
export type BuildOptions = { signal: AbortSignal; timeoutMs: number; onLine: (line: BuildLine) => void };
/** `digest`: by which the image can be pulled. `arch`: as Go names it; null where the builder does not say. */
export type Built = { digest: string | null; arch: string | null };
/** Builds and pushes. TaskFailure build_…, registry_…, disk_full. */
export type Build = (spec: BuildSpec, options: BuildOptions) => Promise<Built>;

/** The first buildx that has `--progress=rawjson`. */
const RAWJSON_SINCE = [0, 13] as const;
/** `--provenance`, without which an image gets an index of two manifests. */
const OLDEST_BUILDX = [0, 10] as const;
/** The one of engine 20.10. It keeps cache mounts apart by BUILDKIT_CACHE_MOUNT_NS. */
const OLDEST_BUILDKIT = [0, 8] as const;

/** How much of a Dockerfile is looked at for a frontend, in bytes. */
const MAX_DOCKERFILE = 1024 * 1024;

type Version = readonly [major: number, minor: number];
const versionIn = (text: string, pattern: RegExp): Version | null => {
  const [, major, minor] = pattern.exec(text) ?? [];
  return major === undefined ? null : [Number(major), Number(minor)];
};
const isOlder = ([major, minor]: Version, than: Version): boolean => major < than[0] || (major === than[0] && minor < than[1]);
const buildxVersion = (said: string): Version | null => versionIn(said.replace(/^\S+/, ''), /v?(\d+)\.(\d+)/);

/** Why Berth cannot build there, from what `buildx version` and `buildx inspect` say; null: it can, or they do not tell. */
export function builderProblem(version: string, builder: string): string | null {
  const buildx = buildxVersion(version);
  if (buildx !== null && isOlder(buildx, OLDEST_BUILDX))
    return `buildx ${buildx.join('.')} is too old; Berth needs ${OLDEST_BUILDX.join('.')} or newer`;
  const buildkit = versionIn(builder, /^BuildKit(?: version)?:\s*v?(\d+)\.(\d+)/im);
  if (buildkit !== null && isOlder(buildkit, OLDEST_BUILDKIT))
    return `BuildKit ${buildkit.join('.')} is too old to keep the caches of projects apart; Berth needs ${OLDEST_BUILDKIT.join('.')} or newer`;
  return null;
}

export type BuildSettings = {
  /** Dockerfile frontends beside docker/dockerfile (frontend.ts). */
  frontends: readonly string[];
};

export function createBuild(cli: DockerCli, access: PushAccess, { frontends }: BuildSettings): Build {
  let rawJson: Promise<boolean> | null = null;
  /** Looks at the builder once. Gives whether it has rawjson; throws where it is too old. */
  async function look(): Promise<boolean> {
    const { stdout } = await cli.ok(['buildx', 'version']);
    const builder = await cli.run(['buildx', 'inspect'], { timeoutMs: 20_000 });
    const problem = builderProblem(stdout, builder.stdout);
    if (problem !== null) throw new Error(problem);
    const version = buildxVersion(stdout);
    return version !== null && !isOlder(version, RAWJSON_SINCE);
  }

  return async (spec, { signal, timeoutMs, onLine }) => {
    checkFrontend(await beginning(spec.dockerfile), frontends);
    rawJson ??= look();
    const raw = await rawJson.catch((error: unknown) => {
      rawJson = null;
      throw new TaskFailure(
        'build_failed',
        `docker buildx does not work on this builder: ${error instanceof Error ? error.message : String(error)}`,
        { cause: error },
      );
    });
    const reader = raw ? rawJsonReader(onLine) : plainReader(onLine);
    const labels = Object.entries(spec.labels).flatMap(([k, v]) => ['--label', `${k}=${v}`]);
    const output = ['--push', '--provenance=false', `--progress=${raw ? 'rawjson' : 'plain'}`, '--metadata-file', spec.metadataFile];
    // One project could otherwise put into a cache mount what another one's build runs.
    const namespace = ['--build-arg', `BUILDKIT_CACHE_MOUNT_NS=${spec.project}`];
    const argv = ['buildx', 'build', ...output, ...labels, ...namespace, '--file', spec.dockerfile, '--tag', spec.tag, '--', spec.context];
    const pushing = watchPush((during) => access(repositoryOf(spec.tag), during));
    const result = await cli
      .run(argv, {
        signal: AbortSignal.any([signal, pushing.refused]),
        timeoutMs,
        cwd: spec.context,
        dieWithParent: true,
        maxLine: MAX_MESSAGE,
        onLine: (line, stream) => {
          if (line.includes('pushing')) {
            void failPoint('push.during');
            pushing.begun();
          }
          if (stream === 'stderr') reader.read(line);
        },
      })
      .finally(pushing.stop);
    if (result.ended === 'timeout') throw new TaskFailure('build_timeout', `not done after ${Math.round(timeoutMs / 1000)} s`);
    if (result.code !== 0) throw buildFailure(reader.failed(), result.stderr);
    const { digest, arch } = await readMetadata(spec.metadataFile);
    return { digest, arch: arch ?? (await imageArch(cli, spec.tag, signal)) };
  };
}

/** `refused` is aborted, with the failure as its reason, when the registry lets nobody push while a push is under way. */
function watchPush(ask: (signal: AbortSignal) => Promise<string | null>) {
  const over = new AbortController();
  const refused = new AbortController();
  let begun = false;
  return {
    refused: refused.signal,
    begun(): void {
      if (begun || over.signal.aborted) return;
      begun = true;
      untilRefused(() => ask(over.signal), over.signal).then(
        (said) => refused.abort(new TaskFailure('registry_refused', said)),
        // The push is over, one way or the other.
        () => undefined,
      );
    },
    stop: () => over.abort(new Error('the push is over')),
  };
}

/** Of a Dockerfile; its directives are there. */
async function beginning(path: string): Promise<string> {
  const file = await open(path);
  try {
    const { bytesRead, buffer } = await file.read(Buffer.alloc(MAX_DOCKERFILE), 0, MAX_DOCKERFILE, 0);
    return buffer.toString('utf8', 0, bytesRead);
  } finally {
    await file.close();
  }
}

async function readMetadata(path: string): Promise<Built> {
  const metadata = JSON.parse(await readFile(path, 'utf8')) as Record<string, unknown>;
  const digest = metadata['containerimage.digest'];
  const descriptor = metadata['containerimage.descriptor'] as { platform?: { architecture?: unknown } } | undefined;
  return {
    digest: typeof digest === 'string' && /^sha256:[0-9a-f]{64}$/.test(digest) ? digest : null,
    arch: archName(descriptor?.platform?.architecture),
  };
}

/** Of an image that the engine has, which it has where the engine itself builds. Null for one that a builder beside it made. */
async function imageArch(cli: DockerCli, tag: string, signal: AbortSignal): Promise<string | null> {
  const { code, stdout } = await cli.run(['image', 'inspect', '--format', '{{.Architecture}}', tag], { signal, timeoutMs: 15_000 });
  return code === 0 ? archName(stdout.trim()) : null;
}
const archName = (name: unknown): string | null => (typeof name === 'string' && /^[a-z0-9_]{1,40}$/.test(name) ? name : null);

/** Which code a failed build has follows from what failed: fetching a base image, a step of the Dockerfile, or the push. */
export function buildFailure(failed: FailedStep | null, stderr: string): TaskFailure {
  const words = lastWords(
    stderr
      .split('\n')
      .filter((l) => l.startsWith('ERROR') || /^[^{#]/.test(l))
      .join('\n'),
    2,
  );
  const error = failed?.error ?? words;
  const machine = classify(PUSH_FAILURES, `${error}\n${words}`, 'build_failed');
  if (machine === 'disk_full' || machine === 'engine_unavailable') return new TaskFailure(machine, error);
  // The message that named the step was too long to be read; the last words of the command still say that one failed.
  if (failed === null && /did not complete successfully: exit code: \d+/.test(words)) return new TaskFailure('build_step_failed', words);
  if (failed === null) return new TaskFailure(/push|registry|blob|manifest/i.test(words) ? machine : 'build_failed', words);

  const code = codeOfStep(failed, machine);
  if (code !== 'build_step_failed') return new TaskFailure(code, `${failed.step}: ${failed.error}`);
  const exit = /exit code: (\d+)/.exec(failed.error)?.[1];
  const how = exit === undefined ? failed.error : `exit code ${exit}`;
  const said = failed.output.length === 0 ? '' : `\n${failed.output.map(short).join('\n')}`;
  return new TaskFailure('build_step_failed', `${failed.step}: ${how}${said}`);
}

/** Twelve of them fit into the message of a failure; the log has the whole lines. */
const short = (line: string): string => (line.length > 300 ? `${line.slice(0, 300)}…` : line);

function codeOfStep({ step, error }: FailedStep, machine: FailureCode): FailureCode {
  if (/^(exporting|push|\[auth\])/.test(step)) return machine === 'build_failed' && /push/.test(error) ? 'registry_unreachable' : machine;
  if (step.startsWith('[internal] load metadata') || /^\[[^\]]*\] FROM /.test(step) || step.startsWith('resolve image config'))
    return 'build_base_image';
  if (step.startsWith('[') && !step.startsWith('[internal]')) return 'build_step_failed';
  return 'build_failed';
}
