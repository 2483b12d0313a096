/** Logs in JSON (pino), or readable logs for a terminal. */
import { type Logger, pino } from 'pino';
import pretty from 'pino-pretty';
import { defined } from './defined.ts';
import { cutTexts } from './cut-text.ts';
import { traceOf } from './trace-ids.ts';

export type { Logger };
export type LogOptions = {
  name: string;
  level: string;
  format: 'json' | 'pretty';
  /** Receives the lines. Default: standard output. Tests use it to read the lines. */
  destination?: { write(line: string): void };
  /** True if traces are on; a line about a deployment then has `trace_id`. */
  traces?: boolean;
};

/** Names of fields with credentials. The logger replaces the values of these fields. */
const SECRET_PATHS = [
  'authorization',
  'cookie',
  'password',
  'token',
  'secret',
  'lease_token',
  'registry_password',
].flatMap((k) => [k, `*.${k}`, `*.*.${k}`]);

/**
 * Maximum number of characters in one field. Strangers can cause log lines, and long fields could
 * displace the lines that operators need.
 */
const MAX_FIELD = 4_000;

export function createLogger(options: LogOptions): Logger {
  const settings = {
    name: options.name,
    level: options.level,
    redact: { paths: SECRET_PATHS, censor: '***' },
    formatters: { log: (fields: object) => cutTexts(fields, MAX_FIELD) as Record<string, unknown> },
    serializers: {
      err: (error: Error) => cutTexts({ ...pino.stdSerializers.err(error) }, MAX_FIELD),
    },
    ...defined({ mixin: options.traces === true ? traceIdIn : undefined }),
    timestamp: () => `,"time":"${new Date().toISOString()}"`,
  };
  // Both formats write synchronously, so that lines before a crash are not lost.
  if (options.format === 'pretty')
    return pino(
      settings,
      pretty({
        colorize: true,
        ignore: 'pid,hostname',
        translateTime: 'SYS:HH:MM:ss.l',
        sync: true,
      }),
    );
  return pino(settings, options.destination ?? pino.destination({ dest: 1, sync: true }));
}

/**
 * Returns the trace of the deployment that the line names. The loggers of tasks and requests have
 * the trace in their own fields.
 */
function traceIdIn(fields: object): { trace_id?: string } {
  const { deployment_id: id } = fields as { deployment_id?: unknown };
  const trace = typeof id === 'string' ? traceOf(id) : null;
  return trace === null ? {} : { trace_id: trace.traceId };
}

export const silentLogger = (): Logger => pino({ level: 'silent' });
