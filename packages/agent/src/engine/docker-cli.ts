/**
 * Runs the docker command with the agent's own `--config` folder for credentials (mode 0600) and a
 * minimal environment. The operator's own docker config is neither read nor written.
 */
import { chmod, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { defined } from '@berth/kit/defined';
import { exec, type ExecOptions, type ExecResult, exitError } from '@berth/kit/exec';
import { writeFileWhole } from '@berth/kit/write-file';
import { classify, REGISTRY_FAILURES, TaskFailure } from '../failures.ts';

export type DockerCliOptions = {
  /** STATE_DIR/docker. */
  configDir: string;
  /** The variables that all tools of the agent receive. */
  inherit: NodeJS.ProcessEnv;
  dockerHost?: string | undefined;
  pluginsDir?: string | undefined;
};

export type RunOptions = Partial<Omit<ExecOptions, 'env'>> & { env?: NodeJS.ProcessEnv };

export type DockerCli = {
  /**
   * Runs `docker <args>`, by default for at most 60 s. Returns the result of a failed exit too; it
   * does not throw. Rejects with the signal’s reason if the signal ended it.
   */
  run(args: readonly string[], options?: RunOptions): Promise<ExecResult>;
  /**
   * Like `run`, but a failed exit throws ExecError, and an engine that does not answer TaskFailure
   * `engine_unavailable`.
   */
  runOrThrow(args: readonly string[], options?: RunOptions): Promise<ExecResult>;
  /** Writes the credentials for `address`. They take effect with the next call. */
  useRegistry(registry: RegistryLogin | null): Promise<void>;
};
export type RegistryLogin = { address: string; user: string; password: string };

export function createDockerCli(options: DockerCliOptions): DockerCli {
  const base = [
    'docker',
    '--config',
    options.configDir,
    ...(options.dockerHost === undefined ? [] : ['--host', options.dockerHost]),
  ];
  const env: NodeJS.ProcessEnv = {
    ...options.inherit,
    HOME: options.configDir,
    LC_ALL: 'C',
    DOCKER_BUILDKIT: '1',
    DOCKER_CLI_HINTS: 'false',
  };
  let secrets: string[] = [];

  const cli: DockerCli = {
    async run(args, options = {}) {
      const { env: extra, redact, ...rest } = options;
      const result = await exec([...base, ...args], {
        timeoutMs: 60_000,
        ...rest,
        env: { ...extra, ...env },
        redact: [...secrets, ...(redact ?? [])],
      });
      if (result.ended === 'abort') options.signal?.throwIfAborted();
      return result;
    },
    async runOrThrow(args, options) {
      const result = await cli.run(args, options);
      if (result.code === 0 && result.ended === null) return result;
      // The error names the docker verb only; the full argv is long and does not help.
      const error = exitError(
        result,
        [...secrets, ...(options?.redact ?? [])],
        ['docker', ...args.slice(0, 1)],
      );
      const code =
        result.ended === 'timeout'
          ? 'engine_unavailable'
          : classify(REGISTRY_FAILURES, result.stderr, 'task_failed');
      if (code === 'engine_unavailable' || code === 'disk_full')
        throw new TaskFailure(code, error.message, { cause: error });
      throw error;
    },
    async useRegistry(registry) {
      await writeConfig(options, registry);
      secrets =
        registry === null || registry.password === '' ? [] : [registry.password, basic(registry)];
    },
  };
  return cli;
}

const basic = (r: RegistryLogin): string =>
  Buffer.from(`${r.user}:${r.password}`, 'utf8').toString('base64');

/** A docker command that starts meanwhile reads the old credentials or the new ones. */
async function writeConfig(
  options: DockerCliOptions,
  registry: RegistryLogin | null,
): Promise<void> {
  await mkdir(options.configDir, { recursive: true, mode: 0o700 });
  await chmod(options.configDir, 0o700);
  const content = {
    auths:
      registry === null || registry.user === ''
        ? {}
        : { [registry.address]: { auth: basic(registry) } },
    ...defined({
      cliPluginsExtraDirs: options.pluginsDir === undefined ? undefined : [options.pluginsDir],
    }),
  };
  const path = join(options.configDir, 'config.json');
  await writeFileWhole(path, JSON.stringify(content));
}
