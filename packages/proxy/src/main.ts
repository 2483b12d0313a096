/** `berth proxy`: a development proxy that serves Traefik's dynamic configuration on one port. */
import { SettingsError } from '@berth/kit/config';
import { messageOf } from '@berth/kit/message-of';
import { type ProcessContext, runProcess } from '@berth/kit/run-process';
import type { Configuration } from './configuration.ts';
import { type ProxyConfig, readConfig, type SETTINGS } from './config.ts';
import { readConfigurationFile, startHttpProvider, watchConfigurationFile } from './provider.ts';
import { type Configurations, compile, type Provider } from './router.ts';
import { createProxy } from './server.ts';

export async function main(): Promise<void> {
  await runProcess({
    readConfig,
    logOf: (config) => ({ name: 'proxy', format: config.logFormat }),
    start,
  });
}

async function start({
  config,
  log,
  closers,
}: ProcessContext<ProxyConfig, typeof SETTINGS>): Promise<void> {
  const proxy = createProxy(log);

  let configurations: Configurations = {};
  const use = (provider: Provider, configuration: Configuration): void => {
    configurations = { ...configurations, [provider]: configuration };
    const table = compile(configurations);
    proxy.use(table);
    // The proxy is ready when it has all routes. With CONFIG_URL set, the file alone is not enough.
    if (provider === 'http' || config.CONFIG_URL === undefined) proxy.setUnready(null);
    log.info({ provider, routes: table.size }, 'routes switched');
    for (const problem of table.problems) log.error({ problem }, 'route skipped');
  };

  if (config.FILE_CONFIG !== undefined) {
    const path = config.FILE_CONFIG;
    use('file', readAtStart(path));
    const watching = watchConfigurationFile(
      path,
      (configuration) => use('file', configuration),
      log,
    );
    closers.add('file provider', () => watching.stop());
  }
  const address = await proxy.listen(config.LISTEN);
  closers.add('server', () => proxy.close());
  if (config.CONFIG_URL !== undefined) {
    const polling = startHttpProvider(
      config.CONFIG_URL,
      (configuration) => use('http', configuration),
      log,
    );
    closers.add('http provider', () => polling.stop());
  }
  log.info({ address: `${address.address}:${address.port}` }, 'listening');
}

/** Treats an invalid file as a wrong setting. After the start, an invalid file is only logged. */
function readAtStart(path: string): Configuration {
  try {
    return readConfigurationFile(path);
  } catch (error) {
    throw new SettingsError([`FILE_CONFIG: ${path}: ${messageOf(error)}`]);
  }
}
