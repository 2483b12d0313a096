/**
 * Logs in to the registry: writes its credentials into the agent's docker config folder, and tries
 * them once.
 */
import type { AgentConfig } from '@berth/wire/task';
import type { DockerCli } from './docker-cli.ts';
import { outputTail } from '../failures.ts';

/**
 * Writes the credentials for all later docker commands, and lets the engine try them. Returns the
 * engine's message if the login failed, else null. The agent goes on after a failed login: each
 * task reports its own registry errors.
 */
export async function logIn(
  cli: DockerCli,
  config: AgentConfig,
  signal: AbortSignal,
): Promise<string | null> {
  if (config.registry_addr === '')
    return 'the control plane has no registry; set its REGISTRY_ADDR';
  const login = {
    address: config.registry_addr,
    user: config.registry_user,
    password: config.registry_password,
  };
  await cli.useRegistry(login);
  if (login.user === '') return null;
  const result = await cli.run(
    ['login', '--username', login.user, '--password-stdin', login.address],
    {
      stdin: login.password,
      signal,
      timeoutMs: 30_000,
    },
  );
  // A successful `docker login` rewrites the config file; write the agent’s own content again.
  await cli.useRegistry(login);
  return result.code === 0 ? null : outputTail(result.stderr) || 'docker login failed';
}
