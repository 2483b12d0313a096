/**
 * Builds the dashboard of the next version: one page differs. Its file gets another name, and so
 * does each file that names it.
 */
import { mergeConfig, type Plugin } from 'vite';
import config from '../../packages/dashboard/vite.config.ts';

const changedPage: Plugin = {
  name: 'berth-next-version',
  transform: (code, id) =>
    /[/\\]src[/\\]pages[/\\]datasets\.tsx$/.test(id)
      ? { code: `${code}\ndocument.documentElement.dataset.version = 'next';\n`, map: null }
      : null,
};

export default mergeConfig(config, { plugins: [changedPage] });
