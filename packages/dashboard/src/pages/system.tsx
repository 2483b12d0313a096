import { AdminOnly } from '../parts/admin-only.tsx';
import { PageLayout } from '../parts/page-layout.tsx';
import { QueryBoundary } from '../parts/query-boundary.tsx';
import { useApiQuery } from '../api/queries.ts';
import { Column } from '../ui/layout.tsx';
import { Backups } from './system/backups.tsx';
import { RegistryCleanUps } from './system/clean-ups.tsx';
import { Readiness } from './system/readiness.tsx';
import { Settings } from './system/settings.tsx';
import { Versions } from './system/versions.tsx';

export const SystemPage = () => (
  <AdminOnly title="System">
    <System />
  </AdminOnly>
);

function System() {
  const system = useApiQuery('system', {}, { everyMs: 10_000 });
  return (
    <PageLayout title="System">
      <Column gap="lg">
        <Readiness system={system} />
        <Versions />
      </Column>
      <RegistryCleanUps />
      <QueryBoundary query={system} what="the settings">
        {({ settings, backups }) => (
          <Column gap="lg">
            <Backups backups={backups} />
            <Settings settings={settings} />
          </Column>
        )}
      </QueryBoundary>
    </PageLayout>
  );
}
