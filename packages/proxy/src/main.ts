/** `berth proxy`: Traefik's dynamic configuration, served on one port of a developer's machine. */
import { createClosers, closeOnSignals } from '@berth/kit/closers';
import { SettingsError } from '@berth/kit/config';
import { createLogger } from '@berth/kit/log';
import type { Configuration } from './configuration.ts';
import { readConfig } from './config.ts';
import { readConfigurationFile, startHttpProvider, watchConfigurationFile } from './provider.ts';
import { type Configurations, compile, type Provider } from './router.ts';
import { createProxy } from './server.ts';

export async function main(): Promise<void> {
  const config = readConfig();
  const log = createLogger({ name: 'proxy', level: config.LOG_LEVEL, format: config.logFormat });
  const closers = createClosers(log);
  const proxy = createProxy(log);

  let known: Configurations = {};
  const use = (provider: Provider, configuration: Configuration): void => {
    known = { ...known, [provider]: configuration };
    const table = compile(known);
    proxy.use(table);
    // Ready means: knows what there is to route. The file alone does not, where an address was given too.
    if (provider === 'http' || config.CONFIG_URL === undefined) proxy.setUnready(null);
    log.info({ provider, routes: table.size }, 'routes switched');
    for (const problem of table.problems) log.error({ problem }, 'left out of the routes');
  };

  if (config.FILE_CONFIG !== undefined) {
    const path = config.FILE_CONFIG;
    use('file', readAtStart(path));
    const watching = watchConfigurationFile(path, (configuration) => use('file', configuration), log);
    closers.add('file provider', () => watching.stop());
  }
  const address = await proxy.listen(config.LISTEN);
  closers.add('server', () => proxy.close());
  if (config.CONFIG_URL !== undefined) {
    const polling = startHttpProvider(config.CONFIG_URL, (configuration) => use('http', configuration), log);
    closers.add('http provider', () => polling.stop());
  }
  closeOnSignals(closers, log);
  log.info({ address: `${address.address}:${address.port}` }, 'listening');
}

/** Later a bad file is only reported; at start it is a wrong setting like any other. */
function readAtStart(path: string): Configuration {
  try {
    return readConfigurationFile(path);
  } catch (error) {
    throw new SettingsError([`FILE_CONFIG: ${path}: ${error instanceof Error ? error.message : String(error)}`]);
  }
}
