/** Logs in to the registry: stores its credentials for later calls, and tests them once. */
import type { AgentConfig } from '@berth/wire/task';
import { outputTail } from '../failures.ts';
import type { EngineClient } from './engine-client.ts';
import { reasonOf } from './engine-errors.ts';
import type { RegistryCredentials } from './registry-credentials.ts';

export type RegistryLogIn = {
  engine: EngineClient;
  credentials: Pick<RegistryCredentials, 'use'>;
};

/**
 * Stores the credentials, and lets the engine test them. Returns the engine's message if the login
 * failed, else null. The agent continues after a failed login: each task reports its own registry
 * errors.
 */
export async function logIn(
  { engine, credentials }: RegistryLogIn,
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
  await credentials.use(login);
  if (login.user === '') return null;
  const body = {
    username: login.user,
    password: login.password,
    serveraddress: login.address,
  };
  try {
    await engine.call('POST /auth', { body, signal, timeoutMs: 30_000 });
    return null;
  } catch (error) {
    signal.throwIfAborted();
    return outputTail(reasonOf(error)) || 'the login failed';
  }
}
