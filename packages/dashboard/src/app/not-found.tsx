import { PageLink, Text } from '../ui/text.tsx';
import { Page } from './page.tsx';

export const NotFound = () => (
  <Page title="Not found">
    <Text>Nothing is at this address, or you may not see it. It may have been deleted.</Text>
    <PageLink to="/" size="sm">
      Go to the overview
    </PageLink>
  </Page>
);
