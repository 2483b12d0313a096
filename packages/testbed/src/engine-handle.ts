// The interface of a container engine to its users, whoever started it.
import { existsSync } from 'node:fs';
import type { Switch } from './cable.ts';
import { findProgram } from './config.ts';
import { type Finished, type RunOptions, run } from './process.ts';

/** Faults that a test injects into a private engine. */
export interface EngineFaults {
  /** Process id of dockerd, seen from here. */
  daemonPid(): number;
  /** Returns the prefix that runs a program inside the engine's namespaces. */
  nsenterArgv(): string[];
  /**
   * Ends the engine and starts it again. Returns when it answers. `power-cut` (default): the daemon
   * and all containers die at once; containers with a restart policy start again. `SIGTERM`: an
   * orderly stop; containers with a restart policy start again (10 s for a container that ignores
   * SIGTERM). `SIGKILL`: only the daemon dies. Engine 20.10 then *stops* the containers that
   * survived, whatever their restart policy.
   */
  restartDaemon(how?: 'power-cut' | 'SIGTERM' | 'SIGKILL'): Promise<void>;
  /**
   * Cuts the power: every process inside dies at once, also programs started by nsenterArgv().
   * Idempotent.
   */
  powerOff(): Promise<void>;
  /**
   * After powerOff(): starts the daemon, which starts the containers with a restart policy. Returns
   * when it answers.
   */
  powerOn(): Promise<void>;
  /**
   * Disconnects the engine from the network (false) or connects it (true). Its unix socket keeps
   * answering.
   */
  connect(on: boolean): Promise<void>;
}

export interface Engine {
  readonly name: string;
  /** Value for DOCKER_HOST. */
  readonly host: string;
  /** Value for DOCKER_CONFIG: a private folder, into which `docker login` writes. */
  readonly dockerConfigDir: string;
  /** Address at which published ports answer, seen from the main namespace. */
  readonly hostIp: string;
  /**
   * Address of the main namespace, seen from the engine and from containers: the registry, git
   * server and control plane listen there.
   */
  readonly gatewayIp: string;
  /**
   * Address to which published ports are bound; undefined: all addresses (safe in a private engine:
   * nobody outside reaches it).
   */
  readonly publishIp: string | undefined;
  /** true: this process started the engine and owns everything in it. */
  readonly owned: boolean;
  /** Whether builds can reach the internet (assumed for an engine that is not private). */
  readonly outward: boolean;
  readonly faults: EngineFaults | undefined;
  /** DOCKER_HOST and DOCKER_CONFIG for child processes. */
  readonly env: { readonly DOCKER_HOST: string; readonly DOCKER_CONFIG: string };
  /** Runs the docker client on this engine. @throws ProcessFailed unless `mayFail` */
  docker(args: readonly string[], options?: RunOptions): Promise<Finished>;
  /** Ends a private engine and everything in it. Leaves another engine running. Idempotent. */
  stop(): Promise<void>;
}

export interface EngineOptions {
  /**
   * Folder for images, build cache and logs. It is kept between runs, so that the second run is
   * fast.
   */
  readonly dir: string;
  readonly log?: (line: string) => void;
  /** true: start a private engine although another one answers (tests with several nodes). */
  readonly private?: boolean;
  /** Distinguishes several engines in one `dir` (default `main`). */
  readonly name?: string;
  /** true: start without images and keep nothing. */
  readonly fresh?: boolean;
  /**
   * Devices of the engine, of the kind `berth.example/toy`: name and file of this machine, such as
   * `{ a: '/dev/null' }`. Needs `fresh` and deviceEngine().
   */
  readonly devices?: Readonly<Record<string, string>>;
  /** Switch into which a private engine is plugged; left out: its own cable to this machine. */
  readonly network?: Switch;
}

/** Whether an engine answers at `host` within 3 s. */
export async function engineAnswers(host: string): Promise<boolean> {
  if (host.startsWith('unix://') && !existsSync(host.slice('unix://'.length))) return false;
  if (findProgram('docker') === undefined) return false;
  try {
    const answer = await run(
      ['docker', '--host', host, 'version', '--format', '{{.Server.Version}}'],
      {
        deadlineMs: 3_000,
        mayFail: true,
      },
    );
    return answer.code === 0;
  } catch {
    // The engine accepted the connection and was silent for 3 s.
    return false;
  }
}

/** Completes the description of an engine with what follows from it. */
export function describeEngine(engine: Omit<Engine, 'env' | 'docker'>): Engine {
  const env = { DOCKER_HOST: engine.host, DOCKER_CONFIG: engine.dockerConfigDir };
  return {
    ...engine,
    env,
    docker: (args, options = {}) =>
      run(['docker', ...args], { ...options, env: { ...options.env, ...env } }),
  };
}
