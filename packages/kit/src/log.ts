/** JSON logs (pino), or readable ones on a terminal. */
import { type Logger, pino } from 'pino';
import pretty from 'pino-pretty';

export type { Logger };
export type LogOptions = {
  name: string;
  level: string;
  format: 'json' | 'pretty';
  /** Default: standard output. Tests read the lines there. */
  destination?: { write(line: string): void };
};

/** Headers and fields that carry credentials; whatever is logged under these names is replaced. */
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
  // Synchronous in both: a line written before a crash is a line that is there after it.
  if (options.format === 'pretty')
    return pino(settings, pretty({ colorize: true, ignore: 'pid,hostname', translateTime: 'SYS:HH:MM:ss.l', sync: true }));
  return pino(settings, options.destination ?? pino.destination({ dest: 1, sync: true }));
}

export const silentLogger = (): Logger => pino({ level: 'silent' });
