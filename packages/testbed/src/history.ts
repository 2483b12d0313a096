/**
 * History of one run: what clients, agents, engines and proxies saw, in the order in which they
 * learned it. An append-only list that invariants.ts checks. The simulator keeps it in memory; real
 * processes append JSON lines, one file each.
 *
 * `at` is the time at which an event was known. `sent` is the time at which its request was sent. A
 * request is later than an answer only if it was sent after that answer had arrived; otherwise the
 * two are concurrent. All times are of one clock (one machine's, or the simulator's).
 */
import { appendFileSync, readFileSync } from 'node:fs';

/**
 * An agent's right to report: the lease token, or a value that stands for it. null: the request had
 * none.
 */
type Lease = string | null;
type Asked = { sent: number };

/**
 * The limits, in ms of service, that the checker enforces. `slack`: the most that a gap without
 * service adds.
 */
export type Deadlines = {
  queue: number;
  route: number;
  build: number;
  deploy: number;
  slack: number;
};

/** How far each deployment has counted in a volume. */
export type Counts = Record<string, number>;

export type Happening =
  /** The limits of the run; the first event. */
  | { type: 'began'; lease_ms: number; deadlines?: Deadlines }
  /** A control plane serves from now on, or stops serving (killed, stalled). */
  | { type: 'serving'; name: string; up: boolean }
  /**
   * A committed change of a deployment: its next state, or `published`. `code`: of the error with
   * which it failed.
   */
  | { type: 'moved'; deployment: string; to: string; code: string | null }
  /** A deployment was requested and accepted. */
  | (Asked & { type: 'accepted'; project: string; deployment: string; key: string | null })
  /**
   * A person is about to request a deployment, a rollback, a restart or a start; `answered` when
   * that person knows the result. `isOnce`: the request has no effect if it arrives again.
   */
  | { type: 'wanted'; project: string; request: string }
  | { type: 'answered'; project: string; request: string; isOnce: boolean }
  /**
   * A person is about to request a stop: from here on the project can be stopped. `at_zero`: by the
   * count 0 of `web`, which a version without `web` leaves to the next one.
   */
  | { type: 'stopping'; project: string; at_zero?: true }
  | (Asked & { type: 'stop_accepted'; project: string })
  /** A client read a project. */
  | (Asked & { type: 'project'; project: string; stopped: boolean })
  /**
   * A container of the deployment starts with the volumes of the project. `entries`: the
   * deployments that have written there, and `counts` how far each has counted.
   */
  | {
      type: 'mounted';
      project: string;
      deployment: string;
      copy: string;
      entries: string[];
      counts: Counts;
    }
  /**
   * A container counted one further, and the control plane had answered the registration that lists
   * it as running.
   */
  | { type: 'wrote'; project: string; deployment: string; copy: string; count: number }
  /**
   * The control plane committed that a copy which was received is the data of the project from now
   * on.
   */
  | { type: 'switched'; project: string; copy: string }
  /** A project that runs at most one version at a time (`recreate`). */
  | { type: 'single_writer'; project: string }
  /**
   * A person is about to change settings of a project: from here on they can hold. `place`: its
   * repository and branch then.
   */
  | {
      type: 'changing';
      project: string;
      request: string;
      place: string;
      replace?: 'rolling' | 'recreate';
    }
  | (Asked & { type: 'changed'; project: string; request: string })
  /** The repository and branch have this commit. */
  | { type: 'pushed'; commit: string; place: string }
  | (Asked & { type: 'cancel_accepted'; deployment: string })
  /** A client is about to request the deletion: from here on the thing can be gone. */
  | { type: 'deleting'; what: 'project' | 'node'; id: string }
  /** A client read a deployment; `missing`: 404. */
  | (Asked & {
      type: 'read';
      project: string;
      deployment: string;
      state: string;
      node: string | null;
      /** The processes of a version without `web`, and how each is replaced. */
      without_web?: Record<string, 'rolling' | 'recreate'>;
    })
  | (Asked & { type: 'claimed'; task: string; attempt: number; lease: string })
  | (Asked & { type: 'renewed'; task: string; lease: string })
  /**
   * A report is about to be sent: its answer can be lost although it takes effect. `address`:
   * host:port of the started container.
   */
  | {
      type: 'reporting';
      task: string;
      kind: string;
      project: string;
      deployment: string;
      lease: Lease;
      status: string;
      address: string | null;
      /** The process without HTTP that the task started. */
      process?: string;
    }
  /** A report was accepted. `content` is equal for equal reports. */
  | (Asked & {
      type: 'reported';
      task: string;
      kind: string;
      deployment: string;
      lease: Lease;
      status: string;
      content: string;
    })
  /** An agent is about to report that it observes this container at this address. */
  | {
      type: 'observing';
      node: string;
      project: string;
      deployment: string;
      address: string;
      /** Its id, if the agent names it. */
      container?: string;
    }
  /** The control plane answered a report that shows this container at this address. */
  | { type: 'told'; project: string; address: string }
  /** A machine has this address from now on. Another one can have had it before. */
  | { type: 'addressed'; machine: string; host: string }
  /**
   * A container changed. `task`: by a retire or deploy task. `contract`: by a contract-only agent,
   * which replaces containers by itself. `outside`: by the engine or a person. `keeps_port`: its
   * agent chose the port, which stays its own until the container is removed. `alone`: no other
   * version can run beside it. `for_next`: it was stopped so that another version can start.
   * `instance`: its label; unset for the first instance.
   */
  | {
      type: 'container';
      change: 'started' | 'moved' | 'stopped' | 'removed';
      cause: 'task' | 'contract' | 'outside' | 'hand';
      node: string;
      container: string;
      project: string;
      deployment: string;
      address: string | null;
      keeps_port?: boolean;
      alone?: boolean;
      for_next?: boolean;
      instance?: string;
      /** Devices of the machine that it uses, by names that no other machine has. */
      devices?: readonly string[];
    }
  /** The container of a process without HTTP changed. */
  | {
      type: 'worker';
      change: 'started' | 'stopped' | 'removed';
      node: string;
      container: string;
      project: string;
      deployment: string;
      process: string;
    }
  /**
   * The instances of a process without HTTP that a project wants at the end. `isAble`: nodes can
   * take them. `deployment`: the version that runs.
   */
  | {
      type: 'wants_workers';
      project: string;
      deployment: string;
      process: string;
      count: number;
      isAble: boolean;
    }
  /**
   * A run is about to be written. `retries`: how often it can start again after it was lost. `not`:
   * why it does not run.
   */
  | {
      type: 'run_planned';
      run: string;
      project: string;
      job: string | null;
      scheduled_for: number | null;
      retries: number;
      not: string | null;
    }
  /** The container of a run, or of a release command (`release-` and the deployment), changed. */
  | {
      type: 'command';
      change: 'started' | 'ended';
      machine: string;
      container: string;
      project: string;
      run: string;
      code: number | null;
      /** As those of a container: machine and device. */
      devices?: readonly string[];
    }
  /** A person is about to change the times of a job. */
  | { type: 'job_setting'; project: string; job: string }
  /** The job has these times from now on. `next`: its next time then. */
  | {
      type: 'job_set';
      project: string;
      job: string;
      change: 'added' | 'changed' | 'deleted';
      schedule: string;
      timezone: string;
      enabled: boolean;
      next: number | null;
    }
  /** Each time of an enabled job up to this one must have been handled. */
  | { type: 'job_clock'; clock: number }
  /** A run as the list of its project shows it at the end. */
  | {
      type: 'run_listed';
      run: string;
      project: string;
      job: string | null;
      scheduled_for: number | null;
      status: string;
      reason: string | null;
    }
  /**
   * A proxy serves these routes from now on: project -> host:port. `pages`: projects with the page
   * of a stopped project instead. `servers`: all addresses of each project with several.
   * `asked`: when it sent its request for them.
   */
  | {
      type: 'routed';
      proxy: string;
      routes: Record<string, string>;
      servers?: Record<string, string[]>;
      pages?: string[];
      asked?: number;
    }
  /** A proxy with several servers of a project asked for its routes, and they had not changed. */
  | { type: 'polled'; proxy: string; asked: number }
  /** A person is about to set how many instances of a project run. */
  | { type: 'scaling'; project: string; count: number; drain_ms: number }
  /** A person is about to set how many instances of a process without HTTP run. */
  | { type: 'counting'; project: string; process: string; count: number }
  /**
   * The instances that a project wants at the end. `isAble`: enough nodes can take them.
   * `deployment`: the version that runs.
   */
  | { type: 'wants'; project: string; deployment: string; count: number; isAble: boolean }
  /**
   * The control plane moves the instances of a silent node. `silent` of `nodes` deploy nodes are
   * silent then.
   */
  | { type: 'failover'; node: string; silent: number; nodes: number }
  /** A request from outside, and the deployment that answered it. */
  | (Asked & { type: 'served'; project: string; deployment: string })
  /**
   * The application that answered a request to the host of `project` said that it belongs to `by`.
   */
  | { type: 'shown'; project: string; by: string }
  /** The control plane ended a lease. */
  | { type: 'taken_away'; task: string; lease: Lease; why: string }
  /**
   * A client read a delivery of a push. `push`: the forge's own id of it, which repeated deliveries
   * share.
   */
  | (Asked & {
      type: 'delivery';
      project: string;
      id: string;
      push: string;
      verdict: string | null;
      deployment: string | null;
    })
  /** A deployment that names a push as its cause. */
  | { type: 'caused'; push: string; deployment: string }
  /**
   * A deployment as the list of its project shows it at the end. `of`: the deployment whose release
   * it deploys again.
   */
  | {
      type: 'listed';
      project: string;
      deployment: string;
      generation: number;
      state: string;
      trigger: string | null;
      of: string | null;
      image: string | null;
      /** The commit, and the repository and branch of its settings. */
      commit?: string | null;
      place?: string;
      /** Whether it must run alone. */
      alone?: boolean;
    }
  /**
   * The volume of a project at the end: the deployments that wrote to the copy that counts, or null
   * if no disk has that copy.
   */
  | {
      type: 'kept';
      project: string;
      copy: string | null;
      entries: string[] | null;
      counts: Counts | null;
    }
  /** A node whose drain has finished, and the projects whose volumes are still there. */
  | { type: 'drained'; node: string; left: string[] }
  /** The newest commit of a branch at the end, and whether it was deployed. */
  | { type: 'tip'; project: string; commit: string; deployed: boolean }
  /**
   * The forge got the status of a commit. `heard`: its answer arrived. `text` tells two statuses of
   * one deployment apart.
   */
  | {
      type: 'status';
      deployment: string;
      commit: string;
      state: string;
      text: string;
      heard: boolean;
    }
  /** The newest status of a commit in the outbox at the end. */
  | { type: 'status_due'; deployment: string; commit: string; state: string }
  /** The control plane lost its connections to the database. */
  | { type: 'cut'; name: string }
  /** A bounded number, and its bound. */
  | { type: 'gauge'; name: string; value: number; bound: number }
  /** Number of lines of a deployment's story, by kind. */
  | { type: 'story'; deployment: string; kinds: Record<string, number> }
  /** An error without a row in the error table. */
  | { type: 'internal_error'; message: string }
  /**
   * The faults have stopped and every deadline has passed; the last reads and observations are the
   * final state.
   */
  | { type: 'ended' };

export type HistoryEvent = Happening & { at: number };
export type History = { record(happening: Happening): void };

export type MemoryHistory = History & { readonly events: HistoryEvent[] };

export function memoryHistory(now: () => number = Date.now): MemoryHistory {
  const events: HistoryEvent[] = [];
  return { events, record: (happening) => void events.push({ at: now(), ...happening }) };
}

/**
 * Appends one JSON line for each event, before `record` returns, so that a recorder killed with -9
 * has lost nothing.
 */
export function historyFile(path: string, now: () => number = Date.now): History {
  return {
    record: (happening) => appendFileSync(path, `${JSON.stringify({ at: now(), ...happening })}\n`),
  };
}

/**
 * Merges the files of several recorders. Leaves out a line that was cut off by the death of its
 * recorder.
 */
export function readHistory(paths: readonly string[]): HistoryEvent[] {
  const events = paths.flatMap((path) =>
    readFileSync(path, 'utf8')
      .split('\n')
      // Text after the last line break is an unfinished line.
      .slice(0, -1)
      .map((line) => JSON.parse(line) as HistoryEvent),
  );
  // The sort is stable: events that one recorder wrote in one millisecond keep their order.
  return events.sort((a, b) => a.at - b.at);
}
