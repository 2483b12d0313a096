/** Builds and pushes an image with `docker buildx build --push`. */
import { randomBytes } from 'node:crypto';
import { open, readFile, writeFile } from 'node:fs/promises';
import { failPoint } from '@berth/kit/fail-point';
import { messageOf } from '@berth/kit/message-of';
import type { FailureCode } from '@berth/wire/errors';
import { repositoryOf } from '../engine/image-ref.ts';
import { createBuildSpool } from './build-spool.ts';
import type { DockerCli } from '../engine/docker-cli.ts';
import {
  type BuildLine,
  type FailedStep,
  MAX_MESSAGE,
  plainReader,
  type ProgressReader,
  rawJsonReader,
} from './build-progress.ts';
import { classify, outputTail, PUSH_FAILURES, TaskFailure } from '../failures.ts';
import { checkFrontend, syntaxOf } from './frontend.ts';
import { dockerfileFacts } from './dockerfile-facts.ts';
import { checkImages, type ImageRules, sourcePolicy, unchecked } from './image-sources.ts';
import { type PushAccess, untilRefused } from './push-access.ts';

export type BuildSpec = {
  /** Id of the project, which separates its cache mounts from those of other projects. */
  project: string;
  /** Folder of the build context. */
  context: string;
  dockerfile: string;
  /** Stage to build; null for the last stage. */
  target: string | null;
  args: Readonly<Record<string, string>>;
  tag: string;
  labels: Record<string, string>;
  /** File in which buildx describes the image; outside the build context. */
  metadataFile: string;
  /** File with the source policy, which BuildKit enforces; outside the build context. */
  policyFile: string;
  /**
   * File for messages that wait until the log has room; outside the build context. It must not
   * exist.
   */
  spoolFile: string;
  /** Values for `RUN --mount=type=secret,id=NAME`. */
  secrets: readonly { name: string; value: string }[];
  noCache: boolean;
};
export type BuildOptions = {
  signal: AbortSignal;
  timeoutMs: number;
  onLine: (line: BuildLine) => void;
  /**
   * Returns null if the log has room, else a promise: messages of the builder wait until it is
   * settled.
   */
  room?: () => Promise<void> | null;
};
export type Built = {
  /** Digest with which the image can be pulled. */
  digest: string | null;
  /** Go’s name of the architecture; null if the builder does not report it. */
  arch: string | null;
};
/**
 * Builds and pushes an image. Throws TaskFailure build_…, registry_…, disk_full,
 * engine_unavailable.
 */
export type Build = (spec: BuildSpec, options: BuildOptions) => Promise<Built>;

/** The first version of buildx with `--progress=rawjson`. */
const RAWJSON_SINCE = [0, 13] as const;
/**
 * The first version of buildx with `--provenance`. Without this option, an image becomes an index
 * of two manifests.
 */
const OLDEST_BUILDX = [0, 10] as const;
/**
 * The version of BuildKit in engine 20.10, which separates cache mounts by BUILDKIT_CACHE_MOUNT_NS.
 */
const OLDEST_BUILDKIT = [0, 8] as const;

/**
 * Maximum size of a Dockerfile in bytes. A larger file is refused, because its end would not be
 * checked.
 */
const MAX_DOCKERFILE = 1024 * 1024;

type Version = readonly [major: number, minor: number];
const versionIn = (text: string, pattern: RegExp): Version | null => {
  const [, major, minor] = pattern.exec(text) ?? [];
  return major === undefined ? null : [Number(major), Number(minor)];
};
const isOlder = ([major, minor]: Version, than: Version): boolean =>
  major < than[0] || (major === than[0] && minor < than[1]);
const buildxVersion = (output: string): Version | null =>
  versionIn(output.replace(/^\S+/, ''), /v?(\d+)\.(\d+)/);

/**
 * Explains why Berth cannot build with the versions printed by `buildx version` and `buildx
 * inspect`; null if it can, or if the versions are unknown.
 */
export function builderProblem(version: string, builder: string): string | null {
  const buildx = buildxVersion(version);
  if (buildx !== null && isOlder(buildx, OLDEST_BUILDX))
    return `buildx ${buildx.join('.')} is too old; Berth needs ${OLDEST_BUILDX.join('.')} or newer`;
  const buildkit = versionIn(builder, /^BuildKit(?: version)?:\s*v?(\d+)\.(\d+)/im);
  if (buildkit !== null && isOlder(buildkit, OLDEST_BUILDKIT))
    return (
      `BuildKit ${buildkit.join('.')} is too old to separate projects’ build caches; Berth needs ` +
      `${OLDEST_BUILDKIT.join('.')} or newer`
    );
  return null;
}

export type BuildSettings = {
  /** Allowed Dockerfile frontends besides docker/dockerfile (frontend.ts). */
  frontends: readonly string[];
  /** Returns the architecture of an engine's image; null if the engine does not have the image. */
  imageArch: (tag: string, signal: AbortSignal) => Promise<string | null>;
  /**
   * Returns the rules for the registry's images that a build of this repository can use
   * (image-sources.ts).
   */
  imageRules: (repository: string) => Promise<ImageRules>;
};

export function createBuild(cli: DockerCli, access: PushAccess, settings: BuildSettings): Build {
  const hasRawJson = createBuilderCheck(cli);
  return async (spec, options) => {
    const dockerfile = await checkSpec(spec, settings);
    const rawJson = await hasRawJson();
    const reader = rawJson ? rawJsonReader(options.onLine) : plainReader(options.onLine);
    const result = await runBuildx(cli, access, spec, options, { reader, rawJson });
    if (result.ended === 'timeout')
      throw new TaskFailure(
        'build_timeout',
        `the build did not finish within ${Math.round(options.timeoutMs / 1000)} s (BUILD_TIMEOUT)`,
      );
    if (result.code !== 0) throw buildFailure(reader.failed(), result.stderr, dockerfile);
    const { digest, arch } = await readMetadata(spec.metadataFile);
    return {
      digest,
      arch: arch ?? (await engineArch(settings.imageArch, spec.tag, options.signal)),
    };
  };
}

/**
 * Checks the builder once, and again only after a failure. Returns whether it supports rawjson.
 * Throws TaskFailure build_failed if it is too old.
 */
function createBuilderCheck(cli: DockerCli): () => Promise<boolean> {
  let rawJson: Promise<boolean> | null = null;
  return async () => {
    rawJson ??= checkBuilder(cli);
    return rawJson.catch((error: unknown) => {
      rawJson = null;
      throw new TaskFailure(
        'build_failed',
        'docker buildx failed on this builder: ' + messageOf(error),
        { cause: error },
      );
    });
  };
}

async function checkBuilder(cli: DockerCli): Promise<boolean> {
  const { stdout } = await cli.runOrThrow(['buildx', 'version']);
  const builder = await cli.run(['buildx', 'inspect'], { timeoutMs: 20_000 });
  const problem = builderProblem(stdout, builder.stdout);
  if (problem !== null) throw new Error(problem);
  const version = buildxVersion(stdout);
  return version !== null && !isOlder(version, RAWJSON_SINCE);
}

/**
 * Checks the images of the Dockerfile and writes the source policy. Returns the text of the
 * Dockerfile.
 */
async function checkSpec(
  spec: BuildSpec,
  { frontends, imageRules }: BuildSettings,
): Promise<string> {
  const dockerfile = await readDockerfile(spec.dockerfile);
  checkFrontend(dockerfile, frontends);
  const rules = await imageRules(repositoryOf(spec.tag));
  checkImages(dockerfile, spec.args, rules, spec.target);
  await writeFile(spec.policyFile, sourcePolicy(rules, frontends));
  return dockerfile;
}

async function runBuildx(
  cli: DockerCli,
  access: PushAccess,
  spec: BuildSpec,
  { signal, timeoutMs, room }: BuildOptions,
  { reader, rawJson }: { reader: ProgressReader; rawJson: boolean },
): ReturnType<DockerCli['run']> {
  const spool = createBuildSpool({
    path: spec.spoolFile,
    room: room ?? (() => null),
    take: (message) => reader.read(message),
    signal,
  });
  const pushing = watchPush((during) => access(repositoryOf(spec.tag), during));
  const { argv, env } = buildCommand(spec, rawJson);
  const running = cli
    .run(argv, {
      signal: AbortSignal.any([signal, pushing.refused]),
      timeoutMs,
      cwd: spec.context,
      env,
      dieWithParent: true,
      maxLine: MAX_MESSAGE,
      // Keep carriage returns: the reader knows where the output of a step begins in a line.
      carriageReturns: 'keep',
      room: () => spool.room(),
      onLine: (line, stream) => {
        if (line.includes('pushing')) {
          void failPoint('push.during');
          pushing.started();
        }
        if (stream === 'stderr') spool.add(line);
      },
    })
    .finally(pushing.stop);
  await Promise.allSettled([running]);
  await spool.end();
  return running;
}

function buildCommand(
  spec: BuildSpec,
  rawJson: boolean,
): { argv: string[]; env: Record<string, string> } {
  const args = buildArgs(spec.args);
  // Pass values through the environment of the docker command, and never through argv, a layer or a
  // file. Each variable has a random name, so that no build argument can use the same name and take
  // the secret's value.
  const secrets = spec.secrets.map((secret) => ({
    ...secret,
    variable: `BERTH_SECRET_${randomBytes(16).toString('hex')}`,
  }));
  const argv = [
    ...['buildx', 'build', '--push', '--provenance=false'],
    `--progress=${rawJson ? 'rawjson' : 'plain'}`,
    ...['--metadata-file', spec.metadataFile],
    ...Object.entries(spec.labels).flatMap(([name, value]) => ['--label', `${name}=${value}`]),
    ...(spec.target === null ? [] : ['--target', spec.target]),
    ...args.argv,
    ...secrets.flatMap(({ name, variable }) => ['--secret', `id=${name},env=${variable}`]),
    ...(spec.noCache ? ['--no-cache'] : []),
    // Without a namespace, a project could put files into a cache mount, and a build of a different
    // project would execute them. The argument comes last, so that no argument of the project can
    // override it.
    ...['--build-arg', `BUILDKIT_CACHE_MOUNT_NS=${spec.project}`],
    ...['--file', spec.dockerfile, '--tag', spec.tag, '--', spec.context],
  ];
  const env = {
    ...args.env,
    ...Object.fromEntries(secrets.map(({ variable, value }) => [variable, value])),
    // buildx passes the policy to BuildKit, which also sees the images in ONBUILD of a base image.
    EXPERIMENTAL_BUILDKIT_SOURCE_POLICY: spec.policyFile,
  };
  return { argv, env };
}

/**
 * Variables that docker, buildx or their libraries read. A build argument with such a name must not
 * be set in their environment, because it would configure them.
 */
const READ_BY_TOOLS = new RegExp(
  `^(${[
    'PATH|HOME|PWD|OLDPWD|USER|LOGNAME|SHELL|TERM|COLUMNS|LINES|CI|NO_COLOR|DISPLAY|TMPDIR',
    'TZ|TZDIR|LANG|LANGUAGE|NLSPATH|LOCPATH|GCONV_PATH|ZONEINFO|GETCONF_DIR',
    'HOSTALIASES|LOCALDOMAIN|RES_OPTIONS|RESOLV\\w*|\\w*_PROXY',
    '(LC|LD|GLIBC|MALLOC|GO|DOCKER|BUILDX|BUILDKIT|COMPOSE|EXPERIMENTAL|OTEL|SSL|XDG)\\w*',
    '(GIT|SSH|GPG|GNUPG|PASSWORD_STORE|CURL|OPENSSL|PKCS11|DBUS|KRB5|GSS)\\w*',
    '(AWS|AZURE|GOOGLE|GITHUB|ACTIONS|SOURCE_DATE|BERTH|NODE|NPM)\\w*',
    '(SYSTEMD|NOTIFY|LISTEN|JOURNAL|INVOCATION)\\w*',
  ].join('|')})$`,
  'i',
);

/**
 * Passes values in the environment of buildx, because every user of the machine can read its
 * arguments.
 */
export function buildArgs(args: Readonly<Record<string, string>>): {
  argv: string[];
  env: NodeJS.ProcessEnv;
} {
  const argv: string[] = [];
  const env: NodeJS.ProcessEnv = {};
  for (const [name, value] of Object.entries(args)) {
    if (/^BUILDKIT_/i.test(name))
      throw new TaskFailure(
        'build_failed',
        `the build argument ${name} configures the builder itself`,
      );
    if (READ_BY_TOOLS.test(name)) argv.push('--build-arg', `${name}=${value}`);
    else {
      argv.push('--build-arg', name);
      env[name] = value;
    }
  }
  return { argv, env };
}

/**
 * Asks the registry during a push. If the registry refuses the push, `refused` is aborted with the
 * failure as its reason.
 */
function watchPush(ask: (signal: AbortSignal) => Promise<string | null>) {
  const ended = new AbortController();
  const refused = new AbortController();
  let started = false;
  return {
    refused: refused.signal,
    started(): void {
      if (started || ended.signal.aborted) return;
      started = true;
      untilRefused(() => ask(ended.signal), ended.signal).then(
        (refusal) => refused.abort(new TaskFailure('registry_refused', refusal)),
        // The push has ended, successfully or not.
        () => undefined,
      );
    },
    stop: () => ended.abort(new Error('the push has ended')),
  };
}

/**
 * Reads the Dockerfile. Throws TaskFailure build_image_refused if it is too large to be checked.
 */
async function readDockerfile(path: string): Promise<string> {
  const file = await open(path);
  try {
    const { bytesRead, buffer } = await file.read(
      Buffer.alloc(MAX_DOCKERFILE + 1),
      0,
      MAX_DOCKERFILE + 1,
      0,
    );
    if (bytesRead > MAX_DOCKERFILE) throw unchecked('1 MiB');
    return buffer.toString('utf8', 0, bytesRead);
  } finally {
    await file.close();
  }
}

async function readMetadata(path: string): Promise<Built> {
  const metadata = JSON.parse(await readFile(path, 'utf8')) as Record<string, unknown>;
  const digest = metadata['containerimage.digest'];
  const descriptor = metadata['containerimage.descriptor'] as
    | { platform?: { architecture?: unknown } }
    | undefined;
  return {
    digest: typeof digest === 'string' && /^sha256:[0-9a-f]{64}$/.test(digest) ? digest : null,
    arch: archName(descriptor?.platform?.architecture),
  };
}

/**
 * Returns the architecture of the engine’s image. Returns null if the engine does not have the
 * image, because a separate builder made it, or does not answer in time.
 */
async function engineArch(
  imageArch: BuildSettings['imageArch'],
  tag: string,
  signal: AbortSignal,
): Promise<string | null> {
  const late = AbortSignal.any([signal, AbortSignal.timeout(ARCH_MS)]);
  try {
    return archName(await imageArch(tag, late));
  } catch {
    signal.throwIfAborted();
    return null;
  }
}
const ARCH_MS = 15_000;
const archName = (name: unknown): string | null =>
  typeof name === 'string' && /^[a-z0-9_]{1,40}$/.test(name) ? name : null;

/**
 * Chooses the failure code by the part that failed: the base image, a step of the Dockerfile, or
 * the push.
 */
export function buildFailure(
  failed: FailedStep | null,
  stderr: string,
  dockerfile = '',
): TaskFailure {
  const tail = outputTail(
    stderr
      .split('\n')
      .filter((l) => l.startsWith('ERROR') || /^[^{#]/.test(l))
      .join('\n'),
    2,
  );
  const error = failed?.error ?? tail;
  const classified = classify(PUSH_FAILURES, `${error}\n${tail}`, 'build_failed');
  if (classified === 'disk_full' || classified === 'engine_unavailable')
    return new TaskFailure(classified, error);
  // The message with the name of the step was too long to read, but the end of the output shows
  // that a step failed.
  if (failed === null && /did not complete successfully: exit code: \d+/.test(tail))
    return new TaskFailure('build_step_failed', tail);
  if (/target stage .* could not be found/i.test(`${error}\n${tail}`))
    return new TaskFailure('build_target_missing', `${error}. ${stagesOf(dockerfile)}`);
  const syntax = syntaxFailure(`${error}\n${tail}`, dockerfile);
  if (syntax !== null) return syntax;
  const frontend = failed === null ? undefined : FRONTEND_STEP.exec(failed.step)?.[1];
  if (frontend !== undefined)
    return new TaskFailure(
      'build_failed',
      `the frontend ${frontend} of the line "# syntax=" could not be pulled: ${error}. Allow ` +
        'the builder to reach its registry, or remove the line: the builder then uses the ' +
        'frontend of its engine',
    );
  if (failed === null)
    return new TaskFailure(
      /push|registry|blob|manifest/i.test(tail) ? classified : 'build_failed',
      tail,
    );

  const code = codeOfStep(failed, classified);
  if (code !== 'build_step_failed')
    return new TaskFailure(code, `${failed.step.replace(METADATA_OF, '')}: ${failed.error}`);
  const lines = [`${failed.step}: ${stepProblem(failed.error)}`, ...failed.output.map(short)];
  return new TaskFailure('build_step_failed', lines.join('\n'));
}

function stepProblem(error: string): string {
  const exit = /exit code: (\d+)/.exec(error)?.[1];
  if (exit !== undefined) return `exit code ${exit}`;
  const missing = MISSING_FILE.exec(error)?.[1];
  if (missing === undefined) return error;
  return `${missing} is not in the build context; commit it, or correct the path or .dockerignore`;
}

/** Matches the step that fetches the frontend of a `# syntax=` line, which is not a base image. */
const FRONTEND_STEP = /^resolve image config for (?:docker-image:\/\/)?(\S+)/;
/** Matches BuildKit's errors about unknown syntax. */
const UNKNOWN_SYNTAX =
  /(?:dockerfile parse error|failed to parse|unknown instruction|unknown flag)[^\n]*?(unknown (instruction|flag): \S+)/i;
const BARE_SYNTAX = /(unknown (instruction|flag): \S+)/i;
/** Matches syntax that the frontend of an old engine does not support. */
const NEWER_SYNTAX =
  /<<-?\s*["']?[A-Za-z_]|^\s*(?:COPY|ADD|RUN|FROM|HEALTHCHECK)\s[^\n]*--(?:link|parents|exclude|checksum|chmod|keep-git-dir|security|network|mount|start-interval|unpack)\b/im;

/**
 * Explains an instruction or flag that the frontend does not support; null for any other failure.
 */
function syntaxFailure(text: string, dockerfile: string): TaskFailure | null {
  const [, what, kind] = UNKNOWN_SYNTAX.exec(text) ?? BARE_SYNTAX.exec(text) ?? [];
  if (what === undefined || !/dockerfile|solve/i.test(text)) return null;
  const line = /line (\d+)/i.exec(text)?.[1];
  const where = line === undefined ? '' : ` in line ${line} of the Dockerfile`;
  const isOwn = syntaxOf(dockerfile) !== null;
  const newer = NEWER_SYNTAX.test(dockerfile) || /flag/i.test(kind ?? '');
  const next =
    newer && !isOwn
      ? "The Dockerfile uses syntax that is newer than the BuildKit of this builder's engine (a " +
        'heredoc, or a flag like --link). Begin it with the line "# ' +
        'syntax=docker/dockerfile:1", or ' +
        'use Docker 23 or newer on the builder'
      : 'Correct the line; a line that continues the one before needs a backslash at the end of ' +
        'that one';
  return new TaskFailure('build_failed', `${what}${where}. ${next}`);
}

/** Lists the names of a Dockerfile's stages. */
function stagesOf(dockerfile: string): string {
  const { targets } = dockerfileFacts(dockerfile);
  return targets.length === 0
    ? 'No stage of the Dockerfile has a name (FROM image AS name); add one, or remove build_target'
    : `The Dockerfile has the stages ${targets
        .slice(0, 10)
        .map(({ name }) => name)
        .join(', ')}; set build_target to one of them`;
}

/** Matches the name of the step that requests a base image from the registry, up to the image. */
const METADATA_OF = /^\[internal\] load metadata for /;
/** Matches BuildKit's errors about the source of COPY and ADD. */
const MISSING_FILE = /("\/[^"]*")(?: not found)?: not found$/;

/**
 * Shortens a line, so that twelve lines fit into the failure message. The log has the full lines.
 */
const short = (line: string): string => (line.length > 300 ? `${line.slice(0, 300)}…` : line);

function codeOfStep({ step, error }: FailedStep, classified: FailureCode): FailureCode {
  if (/^(exporting|push|\[auth\])/.test(step))
    return classified === 'build_failed' && /push/.test(error)
      ? 'registry_unreachable'
      : classified;
  if (
    step.startsWith('[internal] load metadata') ||
    /^\[[^\]]*\] FROM /.test(step) ||
    step.startsWith('resolve image config')
  )
    return 'build_base_image';
  if (step.startsWith('[') && !step.startsWith('[internal]')) return 'build_step_failed';
  return 'build_failed';
}
