/**
 * Explains why a new container did not become healthy. Pure, so that a test table can cover every
 * case.
 */
import type { CheckFailure } from './health-check.ts';
import type { Listener } from './listening.ts';
import type { ProbeAnswer } from './probe.ts';
import type { Container } from './docker.ts';
import { TaskFailure } from '../failures.ts';
import type { HealthCheck } from './image-config.ts';

export type ExitFacts = {
  memoryBytes: number | null;
  /** The last lines that the container printed. */
  printed: string;
  containerPort: number;
  /** ENTRYPOINT and CMD of the image. */
  command: readonly string[];
  /** Go's name of the image's architecture; empty if the image does not declare one. */
  imageArch: string;
  nodeArch: string;
};

/** Describes a container that exited, or never started, while the agent probed it. */
export function exitFailure(
  container: Pick<Container, 'exitCode' | 'oomKilled' | 'error'>,
  facts: ExitFacts,
): TaskFailure {
  const { exitCode, oomKilled, error } = container;
  const { memoryBytes } = facts;
  const limit = memoryBytes === null ? '' : ` of ${Math.round(memoryBytes / 1_048_576)} MiB`;
  // A shell whose child was killed exits with 128 + the signal number.
  if (oomKilled || (exitCode === 137 && memoryBytes !== null)) {
    return new TaskFailure(
      'container_exited',
      `exit code ${exitCode}, out of memory: the container exceeded its memory limit${limit}; ` +
        'raise memory_bytes of the project, or let the program use less',
    );
  }
  const hint = hintOfExit(exitCode, `${error}\n${facts.printed}`, facts);
  return new TaskFailure(
    'container_exited',
    `exit code ${exitCode}${error === '' ? '' : ` (${error})`}${hint === '' ? '' : `: ${hint}`}`,
  );
}

/** Returns the next step, from the exit code and the container's output; empty if unknown. */
function hintOfExit(
  exitCode: number,
  text: string,
  { containerPort, command, imageArch, nodeArch }: ExitFacts,
): string {
  if (/exec format error/i.test(text))
    return imageArch !== '' && imageArch !== nodeArch
      ? `the image is built for ${imageArch}, and this node is ${nodeArch}; remove --platform ` +
          'from its FROM line, or build it on a builder of this architecture'
      : 'the kernel cannot execute the file: a script needs a first line such as #!/bin/sh';
  const low = lowPortOf(text);
  if (low !== null)
    return (
      `its log says that it may not listen on port ${low}; let the program listen on a port ` +
      `above 1023, and set container_port (now ${containerPort}) to it`
    );
  if (/exec user process caused: no such file|\bexec \S+: no such file or directory/i.test(text))
    return (
      'the image does not contain the program, or the interpreter that the first line of the ' +
      'script names; a script with Windows line ends gives the same error'
    );
  const unusable = text
    .split('\n')
    .find((line) => /\b(bind|listen)/i.test(line) && NO_ADDRESS.test(line));
  if (unusable !== undefined)
    return (
      'its log says that it cannot listen on this address; make it listen on ' +
      `0.0.0.0:${containerPort} (often a setting such as HOST=0.0.0.0 or --host 0.0.0.0)`
    );
  if (/EADDRINUSE|address already in use/i.test(text))
    return (
      'its log says that the port is in use; another program of the same container listens on ' +
      'it'
    );
  if (/read-only file system|EROFS/i.test(text))
    return (
      'its log says that a path is read-only; write elsewhere, mount a volume of the project ' +
      '(volumes), or mount the dataset readwrite'
    );
  if (exitCode === 126)
    return (
      'the file of the command cannot be executed: git update-index --chmod=+x FILE, or RUN ' +
      'chmod +x FILE in the Dockerfile'
    );
  if (exitCode === 127)
    return (
      'a command was not found; correct ENTRYPOINT or CMD, or install the program in the image ' +
      '(a script with Windows line ends gives the same error)'
    );
  if (
    /EACCES|Errno 13|permission denied[^\n]*['"\s]\/|\/[^\s:]+['"]?: permission denied/i.test(text)
  )
    return (
      'its log says that the user of the image may not access a file; change the owner in the ' +
      'Dockerfile (COPY --chown), or USER'
    );
  if (exitCode === 0)
    return (
      'its command ended without an error; a service must stay in the foreground (for example ' +
      'nginx -g "daemon off;", without & at the end)'
    );
  const variable = unexpanded(command);
  if (variable !== null)
    return (
      `ENTRYPOINT or CMD contains $${variable}, and without a shell it stays as it is; write the ` +
      'command without brackets and quotes'
    );
  if (exitCode === 137)
    return 'it was killed; the node may be short of memory, or another program stopped it';
  return '';
}

const NO_ADDRESS =
  /EADDRNOTAVAIL|EAFNOSUPPORT|(cannot|can't) assign requested address|address family not supported/i;

/**
 * Returns the first variable that no shell expands in a command. Returns null if there is none, or
 * if a program in the command can expand it.
 */
function unexpanded(command: readonly string[]): string | null {
  if (command.includes('-c') || command.includes('-ec')) return null;
  for (const word of command) {
    const name = /^\$\{?([A-Z_][A-Z0-9_]*)\}?$|[:=]\$\{?([A-Z_][A-Z0-9_]*)\}?$/.exec(word);
    if (name !== null) return name[1] ?? name[2] ?? null;
  }
  return null;
}

/**
 * Returns the port below 1024 that a program was not allowed to listen on; null if the text names
 * no such port.
 */
function lowPortOf(text: string): number | null {
  for (const line of text.split('\n')) {
    if (
      !/EACCES|permission denied|not permitted/i.test(line) ||
      !/\b(bind|listen|port)/i.test(line)
    )
      continue;
    // Remove times of day first: they look like ports.
    const without = line.replace(/(?<![\d.])\d{1,2}:\d{2}:\d{2}/g, '');
    const port = Number(/(?::|port[ =:]*)(\d{1,5})\b/i.exec(without)?.[1] ?? 0);
    if (port > 0 && port < 1024) return port;
  }
  return null;
}

export type ProbeFacts = {
  containerPort: number;
  healthPath: string | null;
  probeSeconds: number;
  last: ProbeAnswer | null;
  /** Ports on which the container listens; null if they could not be read. */
  listeners: readonly Listener[] | null;
  /** TCP ports of EXPOSE. */
  exposed: readonly number[];
};

export const addressOf = ({ address, port }: Pick<Listener, 'address' | 'port'>): string =>
  `${address.includes(':') ? `[${address}]` : address}:${port}`;
const isIpv6 = ({ address }: Listener): boolean =>
  address.includes(':') && !address.startsWith('::ffff:');

/** Describes a container that runs but did not become healthy in time. */
export function probeFailure(facts: ProbeFacts): TaskFailure {
  const { containerPort, last, listeners } = facts;
  const within = `within ${facts.probeSeconds} s`;
  const exposes =
    facts.exposed.length === 0 || facts.exposed.includes(containerPort)
      ? ''
      : `; the image exposes ${facts.exposed.join(', ')} (EXPOSE)`;
  if (last?.kind === 'status')
    return new TaskFailure(
      'health_check_failed',
      `GET ${facts.healthPath ?? '/'} was answered with status ${last.status} ${within}; below ` +
        '400 is healthy. Correct health_path or the application, or raise start_seconds',
    );
  if (listeners === null)
    return new TaskFailure(
      'probe_timeout',
      `no HTTP answer on port ${containerPort} ${within}${exposes}; the listeners inside the ` +
        'container could not be read',
    );
  if (listeners.length === 0)
    return new TaskFailure(
      'container_not_listening',
      `no program listened ${within}; the project's container port is ` +
        `${containerPort}${exposes}. If it starts slowly, raise start_seconds of the project`,
    );

  const seen = listeners.map(addressOf).join(', ');
  const onPort = listeners.filter((l) => l.port === containerPort);
  const open = onPort.filter((l) => !l.loopback);
  const listenThere =
    `make it listen on 0.0.0.0:${containerPort} (often a setting such as HOST=0.0.0.0 or --host ` +
    '0.0.0.0)';
  if (open.length > 0 && open.every(isIpv6) && last?.kind === 'refused')
    return new TaskFailure(
      'probe_timeout',
      `the program listens on ${open.map(addressOf).join(', ')}, but did not answer over IPv4 ` +
        `${within} (${last.message}); if it listens for IPv6 only, ${listenThere}`,
    );
  if (open.length > 0) {
    return new TaskFailure(
      'probe_timeout',
      `a program listens on port ${containerPort}, but did not answer HTTP ` +
        `${within}${last === null ? '' : ` (${last.message})`}; it must answer HTTP without TLS ` +
        'there, over IPv4 too. If it starts slowly, raise start_seconds of the project',
    );
  }
  if (onPort.length > 0)
    return new TaskFailure(
      'container_loopback_only',
      `the program listens on ${seen}; ${listenThere}`,
    );
  const ports = [...new Set(listeners.map((l) => l.port))];
  const toSet =
    ports.length === 1
      ? `set container_port to ${ports[0]}`
      : 'set container_port to the right one';
  const too = listeners.every((l) => l.loopback) ? ', and on the loopback address only' : '';
  return new TaskFailure(
    'container_wrong_port',
    `the program listens on ${seen}${too}; the project's container port is ${containerPort}${exposes}. ${
      too === ''
        ? `Let the program read PORT, or ${toSet}`
        : `Let the program listen on 0.0.0.0 and read PORT, or ${toSet}`
    }`,
  );
}

/** Describes a container that answers HTTP but whose HEALTHCHECK did not pass. */
export function checkFailure(
  { command }: HealthCheck,
  { output, isFinal }: CheckFailure,
  seconds: number,
): TaskFailure {
  const missing = /executable file not found|no such file or directory|: not found/i.test(output)
    ? 'The image may lack the program of the check. '
    : '';
  const when = isFinal ? '' : ` within ${seconds} s (start_seconds)`;
  const printed = output === '' ? 'It printed nothing' : `It printed: ${output}`;
  return new TaskFailure(
    'image_health_check_failed',
    `${command.join(' ').slice(0, 300)} did not pass${when}. ${missing}Correct HEALTHCHECK in ` +
      `the Dockerfile or the application; HEALTHCHECK NONE turns it off. ${printed}`,
  );
}
