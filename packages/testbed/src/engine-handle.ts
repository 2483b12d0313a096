// The interface of a container engine, independent of who started it.
import { existsSync } from 'node:fs';
import type { Switch } from './cable.ts';
import { findProgram } from './config.ts';
import { type Finished, type RunOptions, run } from './process.ts';

/** Reaches into an engine of our own, for fault tests. */
export interface EngineFaults {
  /** Process id, seen from here, of dockerd itself. */
  daemonPid(): number;
  /** Prefix that runs a program inside the engine's namespaces. */
  nsenterArgv(): string[];
  /**
   * Ends the engine and starts it again; returns when it answers. `power-cut` (default): the daemon and all containers
   * die at once, those with a restart policy come back. `SIGTERM`: in order, the same (10 s for a container that ignores
   * SIGTERM). `SIGKILL`: the daemon alone; engine 20.10 then *stops* containers that outlived it and, whatever their
   * restart policy, leaves them stopped.
   */
  restartDaemon(how?: 'power-cut' | 'SIGTERM' | 'SIGKILL'): Promise<void>;
  /** The power goes: everything in there dies at once, programs started by nsenterArgv() too. Idempotent. */
  powerOff(): Promise<void>;
  /** After powerOff(): starts the daemon, and with it containers with a restart policy. Returns when it answers. */
  powerOn(): Promise<void>;
  /** Cuts the engine off the network (false) and back on (true). Its unix socket goes on answering. */
  connect(on: boolean): Promise<void>;
}

export interface Engine {
  readonly name: string;
  /** For DOCKER_HOST. */
  readonly host: string;
  /** For DOCKER_CONFIG: a private folder; `docker login` writes here. */
  readonly dockerConfigDir: string;
  /** Address at which published ports answer, seen from the main namespace. */
  readonly hostIp: string;
  /** Address of the main namespace, seen from the engine and from containers: registry, git server, control plane. */
  readonly gatewayIp: string;
  /** Address to bind published ports to; undefined: all (safe in an engine of our own: it has no outside). */
  readonly publishIp: string | undefined;
  /** true: started by us, everything in it is ours. */
  readonly owned: boolean;
  /** Whether builds can reach the outside (assumed where the engine is not ours). */
  readonly outward: boolean;
  readonly faults: EngineFaults | undefined;
  /** DOCKER_HOST and DOCKER_CONFIG for children. */
  readonly env: { readonly DOCKER_HOST: string; readonly DOCKER_CONFIG: string };
  /** Runs the docker client on this engine. @throws ProcessFailed unless `mayFail` */
  docker(args: readonly string[], options?: RunOptions): Promise<Finished>;
  /** Ends an engine of ours and all in it; leaves another's alone. Idempotent. */
  stop(): Promise<void>;
}

export interface EngineOptions {
  /** Folder for images, build cache and logs; kept between runs, so that the second run is quick. */
  readonly dir: string;
  readonly log?: (line: string) => void;
  /** true: an engine of our own even where one answers (tests with several nodes). */
  readonly private?: boolean;
  /** Several engines in one `dir` need different names (default `main`). */
  readonly name?: string;
  /** true: without images, and nothing is kept of it. */
  readonly fresh?: boolean;
  /** Where an engine of our own is plugged in; left out: a cable of its own to this machine. */
  readonly network?: Switch;
}

/** Whether an engine answers at `host` within 3 s. */
export async function engineAnswers(host: string): Promise<boolean> {
  if (host.startsWith('unix://') && !existsSync(host.slice('unix://'.length))) return false;
  if (findProgram('docker') === undefined) return false;
  try {
    const answer = await run(['docker', '--host', host, 'version', '--format', '{{.Server.Version}}'], {
      deadlineMs: 3_000,
      mayFail: true,
    });
    return answer.code === 0;
  } catch {
    // Silent for 3 s: it is there, but does not answer.
    return false;
  }
}

/** Adds what follows from the rest of an engine's description. */
export function describeEngine(engine: Omit<Engine, 'env' | 'docker'>): Engine {
  const env = { DOCKER_HOST: engine.host, DOCKER_CONFIG: engine.dockerConfigDir };
  return {
    ...engine,
    env,
    docker: (args, options = {}) => run(['docker', ...args], { ...options, env: { ...options.env, ...env } }),
  };
}
