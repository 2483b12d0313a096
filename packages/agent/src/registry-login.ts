/** The registry's credentials: into the engine's config folder, and tried once (contract: "the agent logs in to the registry"). */
import type { AgentConfig } from '@berth/wire/task';
import type { DockerCli } from './tools/docker-cli.ts';
import { lastWords } from './tools/failures.ts';

/**
 * Writes them for every later docker command, then lets the engine try them. A registry that is down now is a warning,
 * not an end: each task says for itself what it meets. Gives what the engine said when it did not work, else null.
 */
export async function logIn(cli: DockerCli, config: AgentConfig, signal: AbortSignal): Promise<string | null> {
  if (config.registry_addr === '') return 'no registry is set on the control plane (REGISTRY_ADDR)';
  const login = { address: config.registry_addr, user: config.registry_user, password: config.registry_password };
  await cli.useRegistry(login);
  if (login.user === '') return null;
  const result = await cli.run(['login', '--username', login.user, '--password-stdin', login.address], {
    stdin: login.password,
    signal,
    timeoutMs: 30_000,
  });
  // `docker login` rewrites the file when it worked; ours is written again so that it holds what we chose, either way.
  await cli.useRegistry(login);
  return result.code === 0 ? null : lastWords(result.stderr) || 'docker login failed';
}
