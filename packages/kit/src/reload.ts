/**
 * SIGHUP: reads the files of settings (`NAME_FILE`) again and replaces secrets in memory, without a
 * restart. Settings are independent: a setting with a bad file keeps its value, and the others are
 * replaced.
 *
 *   starting   a signal is remembered; the reload follows when the process is ready
 *   running    one reload at a time; signals during a reload cause one more, however many they are
 *   closed     signals are ignored
 */
import { fileText, type SettingsShape, type Values } from './config.ts';
import type { Logger } from './log.ts';
import { messageOf } from './message-of.ts';

/**
 * Replaces the value of a setting. Throws if the process cannot use the new value; the setting then
 * keeps its old value.
 */
export type Replace<S extends SettingsShape> = {
  [K in keyof S]?: (value: NonNullable<Values<S>[K]>) => void | Promise<void>;
};

export type Reloading<S extends SettingsShape> = {
  /**
   * Call it when the process is ready. `replace` lists the settings that change without a restart;
   * `after` runs after each reload.
   */
  ready(replace: Replace<S>, after?: (changed: readonly string[]) => void | Promise<void>): void;
  /**
   * Reads the files again. Resolves when a reload that began after the call is finished. Never
   * rejects.
   */
  reload(): Promise<void>;
  close(): void;
};

/** Call it before the settings are read, so that a reload detects every later change of a file. */
export function createReloading<S extends SettingsShape>(
  shape: S,
  env: NodeJS.ProcessEnv,
  logger: () => Logger,
): Reloading<S> {
  const names = Object.keys(shape).filter(
    (name) => (env[`${name}_FILE`] ?? '') !== '' && (env[name] ?? '') === '',
  );
  /**
   * The texts in use, by setting. An unreadable file has no text here, and the start then fails.
   */
  const used = new Map<string, string>();
  for (const name of names) {
    const text = fileText(name, env, []);
    if (text !== undefined) used.set(name, text);
  }
  let target: {
    replace: Replace<S>;
    after: (changed: readonly string[]) => void | Promise<void>;
  } | null = null;
  let asked = false;
  let closed = false;
  let last: Promise<void> = Promise.resolve();
  let waiting: Promise<void> | null = null;

  async function once({ replace, after }: NonNullable<typeof target>): Promise<void> {
    const log = logger();
    const changed: string[] = [];
    const later: string[] = [];
    let refused = 0;
    for (const name of names) {
      const problems: string[] = [];
      const text = fileText(name, env, problems);
      const apply = replace[name] as ((value: unknown) => void | Promise<void>) | undefined;
      try {
        if (text === undefined || problems.length > 0) throw new Error(problems.join('; '));
        if (text === used.get(name)) continue;
        const value = shape[name]?.parse(text);
        if (apply === undefined) {
          later.push(name);
          continue;
        }
        await apply(value);
        used.set(name, text);
        changed.push(name);
      } catch (error) {
        refused += 1;
        // The errors of secret parsers name the broken rule and never the value.
        log.error(
          { setting: name, rule: messageOf(error) },
          'setting not read again; its value stays',
        );
      }
    }
    if (later.length > 0)
      log.warn({ settings: later }, 'settings changed that take effect at the next start');
    if (changed.length > 0) log.info({ settings: changed }, 'secrets replaced without a restart');
    else if (refused === 0 && later.length === 0) log.info('settings read again: nothing changed');
    await after(changed);
  }

  function reload(): Promise<void> {
    if (closed) return Promise.resolve();
    if (target === null) {
      asked = true;
      return Promise.resolve();
    }
    if (waiting !== null) return waiting;
    const next = last.then(async () => {
      waiting = null;
      if (closed || target === null) return;
      await once(target).catch((err: unknown) =>
        logger().error({ err }, 'reading the settings again failed'),
      );
    });
    last = next;
    waiting = next;
    return next;
  }

  const onSignal = (): void => void reload();
  process.on('SIGHUP', onSignal);
  return {
    ready(replace, after = () => {}) {
      target = { replace, after };
      if (asked) void reload();
    },
    reload,
    close() {
      // Keep the handler, because without it the signal would end the process during its shutdown.
      closed = true;
    },
  };
}
