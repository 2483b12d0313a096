/**
 * Reads the image configuration that the engine reports: the Dockerfile instructions that apply at
 * run time. Pure.
 */

export type HealthCheck = {
  /** The command with its arguments. */
  command: readonly string[];
  timeoutMs: number;
};

export type ImageConfig = {
  /** Go's name of the architecture; empty if the image does not declare one. */
  arch: string;
  /** `USER` as written; empty for root. */
  user: string;
  entrypoint: readonly string[];
  cmd: readonly string[];
  /** TCP ports of `EXPOSE`. */
  exposed: readonly number[];
  /** Paths of `VOLUME`. */
  volumes: readonly string[];
  /** Null if the image has no HEALTHCHECK, or `HEALTHCHECK NONE`. */
  healthCheck: HealthCheck | null;
  /** Null if the image sets no PORT. */
  port: string | null;
};

/** The engine's description of an image. The engine sends null for an empty list. */
export type RawImageConfig = {
  Architecture?: string;
  Config?: {
    User?: string;
    Entrypoint?: string[] | null;
    Cmd?: string[] | null;
    ExposedPorts?: Record<string, unknown> | null;
    Volumes?: Record<string, unknown> | null;
    Healthcheck?: { Test?: string[] | null; Timeout?: number } | null;
    Shell?: string[] | null;
    Env?: string[] | null;
  } | null;
};

/** The engine’s default timeout. */
const CHECK_TIMEOUT_MS = 30_000;

export function readImageConfig({ Architecture = '', Config }: RawImageConfig): ImageConfig {
  const {
    User = '',
    Entrypoint,
    Cmd,
    ExposedPorts,
    Volumes,
    Healthcheck,
    Shell,
    Env,
  } = Config ?? {};
  const exposed = Object.keys(ExposedPorts ?? {}).flatMap(
    (port) => /^(\d+)(?:\/tcp)?$/.exec(port)?.[1] ?? [],
  );
  return {
    arch: Architecture,
    user: User,
    entrypoint: Entrypoint ?? [],
    cmd: Cmd ?? [],
    exposed: exposed.map(Number).sort((a, b) => a - b),
    volumes: Object.keys(Volumes ?? {}).sort(),
    healthCheck: checkOf(Healthcheck ?? {}, Shell ?? []),
    port: Env?.findLast((pair) => pair.startsWith('PORT='))?.slice('PORT='.length) ?? null,
  };
}

function checkOf(
  { Test, Timeout = 0 }: { Test?: string[] | null; Timeout?: number },
  shell: readonly string[],
): HealthCheck | null {
  const [kind, ...rest] = Test ?? [];
  const timeoutMs = Timeout > 0 ? Math.ceil(Timeout / 1_000_000) : CHECK_TIMEOUT_MS;
  if (kind === 'CMD' && rest.length > 0) return { command: rest, timeoutMs };
  // The engine also honours SHELL of the image.
  if (kind === 'CMD-SHELL')
    return { command: [...(shell.length > 0 ? shell : ['/bin/sh', '-c']), ...rest], timeoutMs };
  return null;
}
