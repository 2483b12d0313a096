/**
 * Runs the docker command for builds (`docker buildx`), with the agent's own `--config` folder for
 * credentials and a minimal environment. All other calls go to the engine's API (engine-client.ts).
 */
import { exec, type ExecOptions, type ExecResult, exitError } from '@berth/kit/exec';
import { classify, REGISTRY_FAILURES, TaskFailure } from '../failures.ts';
import type { RegistryCredentials } from './registry-credentials.ts';

export type DockerCliOptions = {
  credentials: Pick<RegistryCredentials, 'configDir' | 'secrets'>;
  /** The environment variables that all tools of the agent receive. */
  inherit: NodeJS.ProcessEnv;
  dockerHost?: string | undefined;
};

export type RunOptions = Partial<Omit<ExecOptions, 'env' | 'redact'>> & { env?: NodeJS.ProcessEnv };

export type DockerCli = {
  /**
   * Runs `docker <args>` with a timeout of 60 s by default. Returns the result also if the command
   * failed. Rejects only with the signal’s reason, after an abort.
   */
  run(args: readonly string[], options?: RunOptions): Promise<ExecResult>;
  /**
   * Like `run`, but throws ExecError if the command failed, and TaskFailure `engine_unavailable` if
   * the engine does not answer.
   */
  runOrThrow(args: readonly string[], options?: RunOptions): Promise<ExecResult>;
};

export function createDockerCli(options: DockerCliOptions): DockerCli {
  return {
    run: (args, runOptions) => runDocker(options, args, runOptions),
    runOrThrow: (args, runOptions) => runDockerOrThrow(options, args, runOptions),
  };
}

async function runDocker(
  { credentials, inherit, dockerHost }: DockerCliOptions,
  args: readonly string[],
  { env, ...options }: RunOptions = {},
): Promise<ExecResult> {
  const host = dockerHost === undefined ? [] : ['--host', dockerHost];
  const result = await exec(['docker', '--config', credentials.configDir, ...host, ...args], {
    timeoutMs: 60_000,
    ...options,
    env: {
      ...env,
      ...inherit,
      HOME: credentials.configDir,
      LC_ALL: 'C',
      DOCKER_BUILDKIT: '1',
      DOCKER_CLI_HINTS: 'false',
    },
    redact: credentials.secrets(),
  });
  if (result.ended === 'abort') options.signal?.throwIfAborted();
  return result;
}

async function runDockerOrThrow(
  options: DockerCliOptions,
  args: readonly string[],
  runOptions?: RunOptions,
): Promise<ExecResult> {
  const result = await runDocker(options, args, runOptions);
  if (result.code === 0 && result.ended === null) return result;
  // The error names only the docker subcommand: the full argv is long and does not help.
  const error = exitError(result, options.credentials.secrets(), ['docker', ...args.slice(0, 1)]);
  const code =
    result.ended === 'timeout'
      ? 'engine_unavailable'
      : classify(REGISTRY_FAILURES, result.stderr, 'task_failed');
  if (code === 'engine_unavailable' || code === 'disk_full')
    throw new TaskFailure(code, error.message, { cause: error });
  throw error;
}
