/** Lists, inspects, starts, stops and removes containers of the engine. */
import type { Container, LabelFilter } from './docker.ts';
import type { Answer, EngineClient } from './engine-client.ts';
import { isContainerGone, orElse, withCode } from './engine-errors.ts';
import { MACHINE_FAILURES } from '../failures.ts';

/** Maximum number of concurrent requests to the engine while several containers are inspected. */
const AT_ONCE = 4;

export type ContainerDescription = Answer<'GET /containers/{id}/json'>;

/** Builds the `filters` parameter of a list or event request. */
export const filtersOf = (
  labels: LabelFilter,
  others: Readonly<Record<string, readonly string[]>> = {},
): string =>
  JSON.stringify({
    ...others,
    label: Object.entries(labels).map(([name, value]) =>
      value === null ? name : `${name}=${value}`,
    ),
  });

export async function listContainers(
  engine: EngineClient,
  labels: LabelFilter,
  signal?: AbortSignal,
): Promise<Container[]> {
  const summaries = await engine.call('GET /containers/json', {
    query: { all: true, filters: filtersOf(labels) },
    signal,
  });
  const ids = summaries.flatMap(({ Id }) => Id ?? []);
  const containers: (Container | null)[] = [];
  let next = 0;
  const describeNext = async (): Promise<void> => {
    for (let at = next++; at < ids.length; at = next++)
      containers[at] = await inspectContainer(engine, ids[at] ?? '', signal);
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, ids.length) }, describeNext));
  // Leave out a container that was removed after it was listed.
  return containers.filter((container) => container !== null);
}

export async function inspectContainer(
  engine: EngineClient,
  ref: string,
  signal?: AbortSignal,
): Promise<Container | null> {
  const description = await describeContainer(engine, ref, signal);
  return description === null ? null : readContainer(description);
}

/** Returns null if the container does not exist. Throws on any other error. */
export async function describeContainer(
  engine: EngineClient,
  ref: string,
  signal?: AbortSignal,
): Promise<ContainerDescription | null> {
  try {
    return await engine.call('GET /containers/{id}/json', { params: { id: ref }, signal });
  } catch (error) {
    if (isContainerGone(error)) return null;
    throw withCode(error, 'engine_unavailable');
  }
}

export async function publishedPort(
  engine: EngineClient,
  id: string,
  containerPort: number,
  signal: AbortSignal,
): Promise<number | null> {
  const description = await describeContainer(engine, id, signal);
  const bindings = description?.NetworkSettings?.Ports?.[`${containerPort}/tcp`];
  // The engine returns one binding for IPv4 and one for IPv6, with the same port.
  return Number(bindings?.[0]?.HostPort ?? 0) || null;
}

export async function restartPolicyOf(
  engine: EngineClient,
  id: string,
  signal: AbortSignal,
): Promise<string> {
  const description = await describeContainer(engine, id, signal);
  return description?.HostConfig?.RestartPolicy?.Name ?? '';
}

export async function environmentOf(engine: EngineClient, id: string): Promise<string[]> {
  const { Config } = await engine.call('GET /containers/{id}/json', { params: { id } });
  return Config?.Env ?? [];
}

export async function stopContainer(
  engine: EngineClient,
  id: string,
  graceSeconds: number,
  signal?: AbortSignal,
): Promise<void> {
  const stopping = engine.call('POST /containers/{id}/stop', {
    params: { id },
    query: { t: graceSeconds },
    timeoutMs: (graceSeconds + 60) * 1_000,
    signal,
  });
  await orElse(stopping, isContainerGone, undefined);
}

export async function removeContainer(engine: EngineClient, ref: string): Promise<void> {
  const removing = engine.call('DELETE /containers/{id}', {
    params: { id: ref },
    query: { force: true, v: true },
    timeoutMs: 120_000,
  });
  await orElse(removing, isContainerGone, undefined);
}

/** Returns false if the container does not exist. */
export async function renameContainer(
  engine: EngineClient,
  id: string,
  name: string,
): Promise<boolean> {
  try {
    await engine.call('POST /containers/{id}/rename', { params: { id }, query: { name } });
    return true;
  } catch (error) {
    if (isContainerGone(error)) return false;
    throw withCode(error, 'task_failed', MACHINE_FAILURES);
  }
}

type State = NonNullable<ContainerDescription['State']>;
type Health = State['Health'];

function readContainer(raw: ContainerDescription): Container {
  const { State: state, Config: config, HostConfig: host } = raw;
  return {
    id: raw.Id ?? '',
    name: (raw.Name ?? '').replace(/^\//, ''),
    image: config?.Image ?? '',
    imageId: raw.Image ?? '',
    labels: config?.Labels ?? {},
    state: state?.Status ?? '',
    exitCode: state?.ExitCode ?? 0,
    oomKilled: state?.OOMKilled ?? false,
    startedAt: toTime(state?.StartedAt),
    finishedAt: toTime(state?.FinishedAt),
    memoryBytes: host?.Memory || null,
    cpus: (host?.NanoCpus ?? 0) / 1e9 || null,
    restarts: raw.RestartCount ?? 0,
    error: state?.Error ?? '',
    hostPort: firstPort(raw.NetworkSettings?.Ports),
    fixedPort: firstPort(host?.PortBindings),
    health: readHealth(state?.Health),
    stopSignal: config?.StopSignal || 'SIGTERM',
  };
}

/**
 * The engine keeps the last five health-check runs. Show the last success of a healthy container,
 * and the last failure of an unhealthy one.
 */
function readHealth(raw: Health | undefined): Container['health'] {
  const status = raw?.Status;
  if (status !== 'starting' && status !== 'healthy' && status !== 'unhealthy') return null;
  const run = raw?.Log?.findLast(
    (entry) => (status === 'healthy') === ((entry?.ExitCode ?? 0) === 0),
  );
  return { status, output: run?.Output ?? '' };
}

type Ports = Record<string, { HostPort?: string }[] | null>;

function firstPort(ports: Ports | null | undefined): number | null {
  const published = Object.entries(ports ?? {}).find(
    ([port, hosts]) => port.endsWith('/tcp') && hosts !== null && hosts.length > 0,
  );
  const port = Number(published?.[1]?.[0]?.HostPort ?? 0);
  return port > 0 ? port : null;
}

/** Converts the engine’s timestamp to milliseconds. The engine writes year 1 for "never". */
function toTime(text: string | undefined): string | null {
  const ms = text === undefined || text.startsWith('0001-') ? Number.NaN : Date.parse(text);
  return Number.isNaN(ms) ? null : new Date(ms).toISOString();
}
