/** Logs in JSON (pino), or readable logs for a terminal. */
import { type Logger, pino } from 'pino';
import pretty from 'pino-pretty';

export type { Logger };
export type LogOptions = {
  name: string;
  level: string;
  format: 'json' | 'pretty';
  /** Default: standard output. Tests use it to read the lines. */
  destination?: { write(line: string): void };
};

/** Names of fields with credentials. The logger replaces the values of these fields. */
const SECRET_PATHS = ['authorization', 'cookie', 'password', 'token', 'secret', 'lease_token', 'registry_password'].flatMap((k) => [
  k,
  `*.${k}`,
  `*.*.${k}`,
]);

export function createLogger(options: LogOptions): Logger {
  const settings = {
    name: options.name,
    level: options.level,
    redact: { paths: SECRET_PATHS, censor: '***' },
    timestamp: () => `,"time":"${new Date().toISOString()}"`,
  };
  // Both formats write synchronously, so that lines before a crash are not lost.
  if (options.format === 'pretty')
    return pino(settings, pretty({ colorize: true, ignore: 'pid,hostname', translateTime: 'SYS:HH:MM:ss.l', sync: true }));
  return pino(settings, options.destination ?? pino.destination({ dest: 1, sync: true }));
}

export const silentLogger = (): Logger => pino({ level: 'silent' });
