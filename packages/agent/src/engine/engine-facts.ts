/** Facts about the engine itself. */
import type { EngineClient } from './engine-client.ts';
import { EngineError } from './engine-client.ts';
import { orElse } from './engine-errors.ts';

/**
 * Returns the id and creation time of the default network, which the engine creates again at each
 * start. The engine reports no other sign of a restart.
 */
export async function engineStartOf(
  engine: EngineClient,
  signal: AbortSignal,
): Promise<{ id: string; since: number } | null> {
  const asking = engine.call('GET /networks/{id}', { params: { id: 'bridge' }, signal });
  const network = await orElse(asking, (error) => error instanceof EngineError, null);
  const since = Date.parse(network?.Created ?? '');
  const id = network?.Id;
  return id === undefined || Number.isNaN(since) ? null : { id, since };
}

export async function engineVersion(
  engine: EngineClient,
  signal: AbortSignal,
): Promise<{ version: string; arch: string }> {
  const { Version: version = '', Arch: arch = '' } = await engine.call('GET /version', { signal });
  return { version, arch };
}
