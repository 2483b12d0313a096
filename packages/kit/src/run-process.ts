/**
 * Runs a process of Berth. Every process starts in this order: SIGHUP, settings, log, fail points,
 * shutdown, then its own parts.
 *
 *   exit code 2   wrong settings; standard error names all of them
 *   exit code 1   the start failed; the last log line says why
 *   exit code 0   SIGTERM or SIGINT, also during the start
 */
import { type Closers, closeOnSignals, createClosers } from './closers.ts';
import { SettingsError, settingsOrExit, type SettingsShape } from './config.ts';
import { type ArmedPoint, armFailPoints } from './fail-point.ts';
import { createLogger, type Logger, type LogOptions } from './log.ts';
import type { Reloading } from './reload.ts';

/** Time for each closer, in ms. systemd kills a process of Berth after 30 s or more. */
const CLOSE_MS = 20_000;

type ProcessSettings = {
  LOG_LEVEL: string;
  BERTH_FAIL_POINTS?: readonly ArmedPoint[] | undefined;
  /** If set, log lines about a deployment contain its trace. */
  OTEL_EXPORTER_OTLP_ENDPOINT?: unknown;
};

export type ProcessContext<Config, Shape extends SettingsShape> = {
  config: Config;
  log: Logger;
  /** Each started part adds its closer. */
  closers: Closers;
  /** Call it when the process is ready. From then on, SIGHUP replaces these settings. */
  ready: Reloading<Shape>['ready'];
  reload: Reloading<Shape>['reload'];
};

export type ProcessPlan<Config extends ProcessSettings, Shape extends SettingsShape> = {
  /** Handles SIGHUP. If it is absent, SIGHUP ends the process. */
  reloading?: (log: () => Logger) => Reloading<Shape>;
  readConfig: () => Config;
  logOf: (config: Config) => Pick<LogOptions, 'name' | 'format'>;
  /** Default: SIGTERM and SIGINT end the process. A worker is ended by its supervisor. */
  handlesSignals?: boolean;
  /** Logs a failed start. Default: one line with the message of the error. */
  logFailure?: (log: Logger, error: unknown) => void;
  start(running: ProcessContext<Config, Shape>): Promise<void>;
};

export async function runProcess<Config extends ProcessSettings, Shape extends SettingsShape>(
  plan: ProcessPlan<Config, Shape>,
): Promise<void> {
  // Register SIGHUP first, so that it does not end a starting process and no file change is missed.
  const reloading: Reloading<Shape> = plan.reloading?.(() => log) ?? withoutReload;
  const config = settingsOrExit(plan.readConfig);
  const log = createLogger({
    ...plan.logOf(config),
    level: config.LOG_LEVEL,
    traces: config.OTEL_EXPORTER_OTLP_ENDPOINT !== undefined,
  });
  armFailPoints(config.BERTH_FAIL_POINTS ?? []);
  const closers = createClosers(log, CLOSE_MS);
  // Handle signals before the parts start, so that a signal during the start ends the process too.
  if (plan.handlesSignals !== false) closeOnSignals(closers, log);
  const running: ProcessContext<Config, Shape> = {
    config,
    log,
    closers,
    ready(replace, after) {
      reloading.ready(replace, after);
      closers.add('reload', () => reloading.close());
    },
    reload: () => reloading.reload(),
  };
  try {
    await plan.start(running);
  } catch (error) {
    await endFailedStart(error, running, plan.logFailure);
  }
}

async function endFailedStart(
  error: unknown,
  { log, closers }: Pick<ProcessContext<never, never>, 'log' | 'closers'>,
  logFailure = logMessage,
): Promise<never> {
  const isSetting = error instanceof SettingsError;
  if (isSetting) process.stderr.write(`${error.message}\n`);
  else logFailure(log, error);
  await closers.close();
  process.exit(isSetting ? 2 : 1);
}

const logMessage = (log: Logger, error: unknown): void =>
  log.fatal({ err: error }, error instanceof Error ? error.message : 'start failed');

const withoutReload: Reloading<SettingsShape> = {
  ready: () => {},
  reload: () => Promise.resolve(),
  close: () => {},
};
