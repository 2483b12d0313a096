/** Creates and starts a container of a deployment. */
import { failPoint } from '@berth/kit/fail-point';
import { classify, MACHINE_FAILURES, outputTail, TaskFailure } from '../failures.ts';
import type { CommandSpec, ContainerSpec, Mount, RunSpec } from './docker.ts';
import { type CallOptions, type EngineClient, EngineError } from './engine-client.ts';
import { startHint } from './start-failures.ts';

type CreateBody = NonNullable<CallOptions<'POST /containers/create'>['body']>;

const TIMEOUT_MS = 120_000;
/**
 * Longest `NAME=value` of a process on Linux in bytes, including the final zero (execve(2),
 * MAX_ARG_STRLEN).
 */
const MAX_ENV_STRING = 131_072;

/**
 * Returns the container's id. If the engine does not start the container, it remains in state
 * `created`.
 */
export async function runContainer(
  engine: EngineClient,
  spec: RunSpec,
  signal: AbortSignal,
): Promise<string> {
  const body = createBody(spec);
  await failPoint('run.before');
  const late = AbortSignal.timeout(TIMEOUT_MS);
  try {
    const [id] = await Promise.all([
      createAndStart(engine, spec.name, body, AbortSignal.any([signal, late])),
      failPoint('run.during'),
    ]);
    await failPoint('run.after');
    return id;
  } catch (error) {
    signal.throwIfAborted();
    throw late.aborted ? tooLate() : startFailure(error);
  }
}

/** Creates a container for a command and returns its id, without starting it. */
export async function createCommand(
  engine: EngineClient,
  spec: CommandSpec,
  signal: AbortSignal,
): Promise<string> {
  const body = commandBody(spec);
  const late = AbortSignal.timeout(TIMEOUT_MS);
  try {
    const { Id: id } = await engine.call('POST /containers/create', {
      query: { name: spec.name },
      body,
      signal: AbortSignal.any([signal, late]),
      timeoutMs: null,
    });
    return id;
  } catch (error) {
    signal.throwIfAborted();
    throw late.aborted ? tooLate() : startFailure(error);
  }
}

async function createAndStart(
  engine: EngineClient,
  name: string,
  body: CreateBody,
  signal: AbortSignal,
): Promise<string> {
  const query = { name };
  const { Id: id } = await engine.call('POST /containers/create', {
    query,
    body,
    signal,
    timeoutMs: null,
  });
  await engine.call('POST /containers/{id}/start', { params: { id }, signal, timeoutMs: null });
  return id;
}

const tooLate = (): TaskFailure =>
  new TaskFailure(
    'container_start_failed',
    `the engine did not start the container within ${TIMEOUT_MS / 1000} s`,
  );

function startFailure(error: unknown): unknown {
  if (!(error instanceof EngineError)) return error;
  const { reason } = error;
  return new TaskFailure(
    classify(MACHINE_FAILURES, reason, 'container_start_failed'),
    `${outputTail(reason)}${startHint(reason)}`,
    { cause: error },
  );
}

/** Returns the request body. Exported for tests. */
export function createBody({ port, command, ...spec }: RunSpec): CreateBody {
  const body = command === null ? containerBody(spec) : commandBody({ ...spec, command });
  if (port === null) return body;
  const name = `${port.containerPort}/tcp`;
  return {
    ...body,
    ExposedPorts: { [name]: {} },
    HostConfig: {
      ...body.HostConfig,
      PortBindings: {
        [name]: [{ HostIp: port.publishIp ?? '', HostPort: String(port.hostPort) }],
      },
    },
  };
}

/** Returns the request body of a command. With an entry point, the engine ignores the image's CMD. */
export function commandBody(spec: CommandSpec): CreateBody {
  const [program = '', ...args] = spec.command;
  const body = { ...containerBody(spec), Entrypoint: [program], Cmd: args };
  return spec.stdin === true
    ? { ...body, AttachStdin: true, OpenStdin: true, StdinOnce: true }
    : body;
}

function containerBody(spec: ContainerSpec): CreateBody {
  return {
    Image: spec.image,
    Env: environmentOf(spec),
    Labels: spec.labels,
    HostConfig: {
      NetworkMode: spec.network ?? 'default',
      Mounts: spec.mounts.map(mountOf),
      // Use no init process, as plain docker does. An init process would send the stop signal to
      // the entrypoint only: a script without `exec` dies of the signal, and its program is killed
      // with the container. Some images also need their own init as process 1.
      SecurityOpt: ['no-new-privileges'],
      // With NET_RAW, a container could forge packets of its neighbours.
      CapDrop: ['NET_RAW'],
      ...limitsOf(spec),
      ...devicesOf(spec),
      RestartPolicy: { Name: 'no' },
      LogConfig: {
        Type: 'json-file',
        Config: { 'max-size': spec.logMaxSize, 'max-file': String(spec.logMaxFiles) },
      },
    },
  };
}

/** Sets the swap limit too: by default, the engine allows as much swap as memory. */
const limitsOf = ({ pidsLimit, memoryBytes, cpus }: ContainerSpec) => ({
  PidsLimit: pidsLimit,
  Memory: memoryBytes ?? 0,
  MemorySwap: memoryBytes ?? 0,
  NanoCpus: Math.round((cpus ?? 0) * 1e9),
});

/** The engine resolves the names as `docker run --device` does. */
const devicesOf = ({ devices }: ContainerSpec) =>
  devices.length === 0 ? {} : { DeviceRequests: [{ Driver: 'cdi', DeviceIDs: [...devices] }] };

const mountOf = ({ source, target, readonly }: Mount) => ({
  Type: 'bind' as const,
  Source: source,
  Target: target,
  ReadOnly: readonly,
});

/**
 * Returns the environment, which is sent in the request body and never appears in argv, a file or a
 * log.
 */
function environmentOf({ env, secretEnv }: ContainerSpec): string[] {
  return Object.entries({ ...env, ...secretEnv }).map(([name, value]) => {
    const variable = `${name}=${value}`;
    if (Buffer.byteLength(variable) + 1 <= MAX_ENV_STRING) return variable;
    throw new TaskFailure(
      'container_start_failed',
      `the variable ${name} with its value exceeds ${MAX_ENV_STRING} bytes, the limit of Linux; ` +
        'shorten it',
    );
  });
}
